"""The only writers of standard output (data) and standard error (messages)."""

from __future__ import annotations

import re
import sys

import msgspec

# Terminal sequences whole (CSI, OSC, other escapes), then every control, bidirectional and invisible character.
_FOREIGN = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0a-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def clean(text: str) -> str:
    """`text` without anything that could steer a terminal; tabs stay, line ends become spaces."""
    return _FOREIGN.sub("", text.replace("\r\n", " ").replace("\n", " "))


def say(text: str) -> None:
    """One message line on standard error."""
    print(clean(text), file=sys.stderr, flush=True)  # noqa: T201 - one of the two writers


class OutputError(Exception):
    """Standard output takes nothing more (a full disk, a terminal that is gone). A reader that left is no such error."""


def data(text: str) -> None:
    """Text of ours on standard output; foreign parts in it must be clean already. Raises OutputError."""
    try:
        print(text, flush=True)  # noqa: T201 - one of the two writers
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error.strerror or str(error)) from error


def flush() -> None:
    """What others printed (typer's help) leaves now, while its failure can still be told. Raises OutputError."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error.strerror or str(error)) from error


def data_json(value: object, *, lines: bool = False) -> None:
    """`value` as JSON on standard output: indented, or on one line for streams."""
    packed = msgspec.json.encode(value)
    data((packed if lines else msgspec.json.format(packed, indent=2)).decode())


def is_terminal() -> bool:
    """Whether a person sits at both ends of this process."""
    return sys.stdin.isatty() and sys.stdout.isatty()
