"""Entry point of `specctl`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

from specctl.cli.guard import guard


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (`specctl.core.exitcodes`)."""
    # A collector that runs during imports frees nothing and costs a fifth of a short command's time.
    gc.disable()
    words = sys.argv[1:] if argv is None else list(argv)
    return guard(lambda: _run(words))


def _run(words: list[str]) -> int:
    from specctl.cli import fastpath

    if (plain := fastpath.read(words)) is not None:
        name, arguments = plain
        return fastpath.command(name)(**arguments)
    from specctl.cli.app import run

    return run(words)


if __name__ == "__main__":
    sys.exit(main())
