"""Entry point of `specctl`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

from specctl.cli.guard import guard, open_missing_streams
from specctl.core.errors import UsageError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (`specctl.core.exitcodes`)."""
    # A collector that runs during imports frees nothing and costs a fifth of a short command's time.
    gc.disable()
    words = sys.argv[1:] if argv is None else list(argv)
    open_missing_streams()
    return guard(lambda: _run(words))


def _run(words: list[str]) -> int:
    for word in words:
        # What the system could not decode; neither JSON nor a TOML file can hold it.
        if not word.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in word):
            raise UsageError(f"the argument {word!a} is not valid text in this locale", remedy="Write it in UTF-8")
    from specctl.cli import fastpath

    if (plain := fastpath.read(words)) is not None:
        name, arguments = plain
        return fastpath.command(name)(**arguments)
    from specctl.cli.app import run

    return run(words)


if __name__ == "__main__":
    sys.exit(main())
