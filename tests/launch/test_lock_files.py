import re
import tomllib
from pathlib import Path

import pytest

from specctl_launch.engines import DEFAULT_SGLANG
from specctl_launch.stamp import lock_file, supported

ROOT = Path(__file__).parents[2]
CONSOLE, DEV = ROOT / "requirements/console.lock", ROOT / "requirements/dev.lock"
ENGINES = [lock_file(version) for version in supported()]
LOCKS = [CONSOLE, DEV, *ENGINES]


def pins(file: Path) -> dict[str, str]:
    return dict(re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;]+)", file.read_text(), flags=re.M))


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("file", LOCKS, ids=lambda file: file.name)
def test_every_pin_has_hashes_and_nothing_names_an_index(file: Path):
    text = file.read_text()
    blocks = re.split(r"^(?=[A-Za-z0-9])", re.sub(r"^\s*#.*\n", "", text, flags=re.M), flags=re.M)
    blocks = [block for block in blocks if block.strip()]
    assert len(blocks) > 20
    for block in blocks:
        assert "--hash=sha256:" in block, block.splitlines()[0]
    assert not re.search(r"://|--index|--find-links|--extra-index|/home/|/tmp/", text)


@pytest.mark.parametrize("file", [CONSOLE, DEV], ids=lambda file: file.name)
def test_the_lock_covers_the_projects_requirements(file: Path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    if file == DEV:
        wanted += project["optional-dependencies"]["dev"] + ["hatchling", "editables"]
    locked = {normal(name) for name in pins(file)}
    for requirement in wanted:
        name = re.match(r"[A-Za-z0-9_.-]+", requirement)
        assert name is not None
        assert normal(name.group()) in locked, "run scripts/lock"


def test_dev_has_the_consoles_versions():
    dev = pins(DEV)
    assert {name: dev[name] for name in pins(CONSOLE)} == pins(CONSOLE)


def test_the_build_backend_is_the_one_that_dev_installs():
    [backend] = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert backend == f"hatchling=={pins(DEV)['hatchling']}"


def test_engine_locks_are_the_list_and_sglang():
    listed = pins(ROOT / "requirements/engine-cpu.in")
    assert len(listed) == 81
    assert supported() == ["0.5.22", "0.5.23"]
    for version in supported():
        locked = pins(lock_file(version))
        assert locked.pop("sglang") == version
        assert {normal(n): v for n, v in locked.items()} == {normal(n): v for n, v in listed.items()}
        assert not {"torch", "triton", "torchvision"} & locked.keys()


def test_the_link_in_requirements_is_the_packaged_lock():
    assert (ROOT / "requirements/engine-cpu.lock").resolve() == lock_file(DEFAULT_SGLANG).resolve()
