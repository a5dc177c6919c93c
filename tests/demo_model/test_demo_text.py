"""The generated training text: the same everywhere, and as its grades promise. Needs no torch."""

import importlib.util
import random
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
DIGEST = "fe3e51510b7916a6db7298149607fcc0c67c03dd1cff9b0430f4167b9df61fd8"


def load(name: str):
    """A module of the build script's package, without putting scripts/ on the path of the other tests."""
    package = SCRIPTS / "demo_model"
    if "demo_model_build" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "demo_model_build", package / "__init__.py", submodule_search_locations=[str(package)]
        )
        sys.modules["demo_model_build"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["demo_model_build"])
    return importlib.import_module(f"demo_model_build.{name}")


text = load("text")
KINDS = [(grade, name) for grade, makers in text.FAMILIES.items() for name in makers]


def test_text_is_the_frozen_one():
    assert text.digest() == DIGEST, "the training text changed: rebuild the demo model, then update this digest"


def test_another_seed_gives_another_text():
    assert text.digest(seed=text.DEFAULT_SEED + 1) != DIGEST


def test_text_does_not_depend_on_the_process():
    program = f"import sys; sys.path.insert(0, {str(SCRIPTS)!r}); from demo_model import text; print(text.digest())"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == DIGEST


def test_the_text_needs_no_torch():
    program = (
        f"import sys; sys.path.insert(0, {str(SCRIPTS)!r}); from demo_model import text; "
        "sys.exit(any(m in sys.modules for m in ('torch', 'transformers', 'tokenizers')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(("grade", "name"), KINDS)
def test_lines_do_not_come_back_soon(grade: str, name: str):
    lines = text.FAMILIES[grade][name](random.Random(5))
    first = [next(lines) for _ in range(60)]
    assert len(set(first)) == len(first)


@pytest.mark.parametrize(("grade", "name"), KINDS)
def test_a_line_follows_from_the_one_before(grade: str, name: str):
    """From one state there is one continuation: greedy text has something to be right about."""
    maker = text.FAMILIES[grade][name]
    once, again = maker(random.Random(9)), maker(random.Random(9))
    assert [next(once) for _ in range(30)] == [next(again) for _ in range(30)]


def test_a_chat_shows_the_lines_that_its_reply_continues():
    maker = text.FAMILIES["low"]["codewords"]
    plain = text.take(maker(random.Random(4)), 400)
    chat = text.document(random.Random(4), "low", maker, 400, chat=True)
    request, reply = chat.text.split("<|im_end|>\n<|im_start|>assistant\n")
    assert plain.startswith(request.removeprefix("<|im_start|>user\n" + text.REPLY_OPENING) + reply[:200])


@pytest.mark.parametrize("grade", ["high", "medium", "low"])
def test_shares_decide_which_grades_come(grade: str):
    weights = {name: float(name == grade) for name in text.FAMILIES}
    assert {document.grade for document in text.corpus(1, 20, 200, weights)} == {grade}


@pytest.mark.parametrize("chat", [False, True])
def test_the_given_part_ends_with_the_first_line(chat: bool):
    maker = text.FAMILIES["medium"]["reports"]
    document = text.document(random.Random(4), "medium", maker, 400, chat=chat)
    first = next(maker(random.Random(4)))
    assert document.text[: document.given].endswith(first)
    assert document.text.index(first) + len(first) == document.given
