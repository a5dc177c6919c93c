"""Reads the two commands that people and scripts run all the time without loading typer.

typer 0.29 loads pydantic for any command: more than twice the time that `specctl status` may take as a whole. Only
plain spellings are read here; everything else (help, errors, completion) is typer's. A test holds both to one reading.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

_FLAG, _TEXT, _NUMBER = "flag", "text", "number"

_OPTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "status": {"--json": ("json", _FLAG), "--socket": ("socket", _TEXT)},
    "mode": {
        "--json": ("json", _FLAG),
        "--wait": ("wait", _FLAG),
        "--timeout": ("timeout", _NUMBER),
        "--reason": ("reason", _TEXT),
        "--socket": ("socket", _TEXT),
    },
}


def read(argv: Sequence[str]) -> tuple[str, dict[str, Any]] | None:
    """Command and keyword arguments of its function, or None where typer has to read it."""
    if not argv or argv[0] not in _OPTIONS or "_SPECCTL_COMPLETE" in os.environ:
        return None
    options, given = _OPTIONS[argv[0]], dict[str, Any]()
    words = iter(argv[1:])
    for word in words:
        if not word.startswith("-"):
            if argv[0] != "mode" or "name" in given or not word:
                return None
            given["name"] = word
            continue
        name, kind = options.get(word, ("", ""))
        if not name or name in given:
            return None
        value = True if kind == _FLAG else _value(next(words, ""), kind)
        if value is None:
            return None
        given[name] = value
    return argv[0], given


def _value(word: str, kind: str) -> str | float | None:
    """None for what is empty, looks like an option or is not a plain number of seconds."""
    if not word or word.startswith("-"):
        return None
    if kind == _TEXT:
        return word
    return float(word) if word.isascii() and word.replace(".", "", 1).isdigit() and float(word) > 0 else None


def command(name: str) -> Callable[..., int]:
    """The function that does it; typer's command of the same name calls the same one."""
    if name == "status":
        from specctl.cli.commands.status import status

        return status
    from specctl.cli.commands.mode import mode

    return mode
