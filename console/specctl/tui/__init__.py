"""The terminal console. `run` is the entry; everything else is imported when it is called."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from specctl.core.exitcodes import ExitCode

if TYPE_CHECKING:
    from specctl.tui.source import Source

__all__ = ["run"]


def run(socket: Path, *, mouse: bool = True, read_only: bool = False) -> int:
    """Show the console on the daemon at `socket` until the operator detaches. Returns the exit code.

    0 after a detach; 143, 129, 130 after SIGTERM, SIGHUP, SIGINT, with the terminal restored; 2 without a terminal.
    """
    from specctl.tui.terminal import missing_tty

    if name := missing_tty():
        print(  # noqa: T201
            f"specctl: the console needs a terminal, and {name} is none. "
            "Use specctl status, specctl mode or specctl logs in scripts.",
            file=sys.stderr,
        )
        return int(ExitCode.USAGE)
    from specctl.tui.remote import RemoteSource

    return run_source(RemoteSource(socket), socket, mouse=mouse, read_only=read_only)


def run_source(source: Source, socket: Path, *, mouse: bool = True, read_only: bool = False) -> int:
    """The same on any source; standard input, output and error must be a terminal."""
    # Nothing made while starting becomes garbage; collecting would cost a tenth of the time to the first picture.
    gc.disable()
    from specctl.tui.app import ConsoleApp
    from specctl.tui.glyphs import glyphs_for
    from specctl.tui.terminal import Keeper, drop_unwritable

    environ = dict(os.environ)
    keeper = Keeper()
    app = ConsoleApp(
        source,
        socket=str(socket),
        read_only=read_only,
        environ=environ,
        glyphs=glyphs_for(environ),
        keeper=keeper,
    )
    try:
        app.run(mouse=mouse)
    finally:
        gc.enable()
        keeper.ended()
        drop_unwritable()
    code = app.return_code or 0
    if code == 0:
        print("specctl: detached; daemon and server keep running. Come back with: specctl", file=sys.stderr)  # noqa: T201
    return code
