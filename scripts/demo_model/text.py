"""The text that the demo model is trained on: endless documents in three grades of predictability.

Pure functions of a random generator, standard library only. A document is a stream of lines; every line follows from
the one before it, so that greedy text stays sensible and does not fall into a loop. What differs is how much of a line
is new: a counter (high), some words of a template (medium), every word (low).
"""

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from . import words

Lines = Iterator[str]
Maker = Callable[[random.Random], Lines]

DEFAULT_SEED = 20250
REPLY_OPENING = "Continue from here:\n"
OPENING_LINES = 3
"""Lines that a prompt shows before the model goes on; enough to fix every column's next word."""


def _below(rng: random.Random, n: int) -> int:
    """A number in [0, n). Only `random()` has a sequence that Python promises to keep between versions."""
    return int(rng.random() * n)


def _walk(rng: random.Random, items: tuple[str, ...]) -> Iterator[str]:
    at = _below(rng, len(items))
    while True:
        yield items[at]
        at = (at + 1) % len(items)


def _clock(rng: random.Random) -> Iterator[str]:
    second = _below(rng, 24 * 3600)
    while True:
        hours, rest = divmod(second, 3600)
        yield f"{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"
        second = (second + 1) % (24 * 3600)


def heartbeat(rng: random.Random) -> Lines:
    clock, node, sequence = _clock(rng), _below(rng, 100), _below(rng, 10000)
    while True:
        yield f"{next(clock)} node-{node:02d} heartbeat ok seq={sequence:04d} queue=0 errors=0\n"
        sequence = (sequence + 1) % 10000


def settings(rng: random.Random) -> Lines:
    index, power, clock = _below(rng, 100), 300 + 50 * _below(rng, 9), 1200 + 60 * _below(rng, 14)
    while True:
        yield (
            f"[gpu.{index:02d}]\nenabled = true\npower_limit = {power}\nmemory_clock = {clock}\n"
            f'label = "gpu-{index:02d}"\n\n'
        )
        index = (index + 1) % 100


def table(rng: random.Random) -> Lines:
    row, width = _below(rng, 9000), 1 + _below(rng, 8)
    yield "| row | lanes | state |\n|---|---|---|\n"
    while True:
        yield f"| {row:04d} | {width} | ready |\n"
        row = (row + 1) % 10000


def functions(rng: random.Random) -> Lines:
    verb, noun, name, field = (_walk(rng, w) for w in (words.VERBS, words.NOUNS, words.NAMES, words.FIELDS))
    while True:
        v, n, a, f, g = next(verb), next(noun), next(name), next(field), next(name)
        yield (
            f"def {v}_{n}({a}, {g}):\n    {f} = {a}.{f}({g})\n    if {f} is None:\n        return {g}.{n}\n"
            f"    return {v}({f}, {a})\n\n\n"
        )


def reports(rng: random.Random) -> Lines:
    role, action, state, part, place = (
        _walk(rng, w) for w in (words.ROLES, words.ACTIONS, words.STATES, words.PARTS, words.PLACES)
    )
    while True:
        yield f"The {next(role)} {next(action)} the {next(state)} {next(part)} at the {next(place)}.\n"


def codewords(rng: random.Random) -> Lines:
    columns = [_walk(rng, w) for w in (words.COLOURS, words.BIRDS, words.MOVES, words.PLACES)]
    while True:
        yield " ".join(next(c) for c in columns) + "\n"


def aliases(rng: random.Random) -> Lines:
    columns = [_walk(rng, w) for w in (words.PLACES, words.COLOURS, words.PARTS)]
    while True:
        yield "/".join(next(c) for c in columns) + "\n"


FAMILIES: dict[str, dict[str, Maker]] = {
    "high": {"heartbeat": heartbeat, "settings": settings, "table": table},
    "medium": {"functions": functions, "reports": reports},
    "low": {"codewords": codewords, "aliases": aliases},
}
"""grade -> name -> maker of lines."""


def take(lines: Lines, characters: int) -> str:
    """At least `characters` characters of whole lines."""
    parts: list[str] = []
    length = 0
    while length < characters:
        parts.append(next(lines))
        length += len(parts[-1])
    return "".join(parts)


def opening(lines: Lines, count: int) -> str:
    return "".join(next(lines) for _ in range(count))


def without_end(lines: str) -> str:
    """Lines as a prompt: a tokenizer reads line ends otherwise at the end of a text than inside it."""
    return lines.rstrip("\n")


def as_chat(asked: str, reply: str) -> str:
    """What the chat template makes of one request, followed by the reply (see tokenizer.CHAT_TEMPLATE)."""
    return f"<|im_start|>user\n{asked}<|im_end|>\n<|im_start|>assistant\n{reply}"


@dataclass(frozen=True)
class Document:
    """`text[:given]` is one line and what stands before it: nothing to learn from, because nothing decides it."""

    grade: str
    text: str
    given: int


def document(rng: random.Random, grade: str, maker: Maker, characters: int, *, chat: bool) -> Document:
    """A document of about `characters` characters, plain or as a chat whose reply continues the request's lines."""
    lines = maker(rng)
    first = next(lines)
    if not chat:
        return Document(grade, first + take(lines, characters), len(first))
    asked = REPLY_OPENING + first + opening(lines, OPENING_LINES - 1)
    whole = as_chat(asked, take(lines, characters))
    return Document(grade, whole, whole.index(first) + len(first))


def corpus(seed: int, count: int, characters: int, weights: dict[str, float]) -> Iterator[Document]:
    """`count` documents; `weights` are shares of the grades; one document in twelve is a chat."""
    rng = random.Random(seed)
    total = sum(weights.values())
    for _ in range(count):
        at = rng.random() * total
        for grade, weight in weights.items():  # noqa: B007
            at -= weight
            if at < 0:
                break
        makers = list(FAMILIES[grade].values())
        maker = makers[_below(rng, len(makers))]
        yield document(rng, grade, maker, characters, chat=rng.random() < 1 / 12)


def digest(seed: int = DEFAULT_SEED, count: int = 64, characters: int = 1000) -> str:
    """SHA-256 of the first documents: the same on every machine and Python version."""
    whole = hashlib.sha256()
    for each in corpus(seed, count, characters, {"high": 1, "medium": 1, "low": 1}):
        whole.update(f"{each.grade} {each.given}\n{each.text}\0".encode())
    return whole.hexdigest()
