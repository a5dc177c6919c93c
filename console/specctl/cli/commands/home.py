"""`specctl` without a command: the console."""

from __future__ import annotations

import sys

from specctl.cli.connect import locate
from specctl.cli.orphans import find_orphan
from specctl.cli.output import is_terminal, say
from specctl.client.blocking import Client
from specctl.core.errors import NoDaemon, UsageError

DEMO_PROFILE = "demo-cpu"


def home(*, mouse: bool, read_only: bool, socket: str | None) -> int:
    """Open the console on the running daemon; without one say how to start, and offer the demo on a terminal."""
    where = locate(socket)
    try:
        Client(where.socket).snapshot()
    except NoDaemon as error:
        if find_orphan(where) is not None or not is_terminal() or not _wants_demo(error):
            raise
        from specctl.cli.commands.up import UpOptions, up

        return up(UpOptions(profile=DEMO_PROFILE, mouse=mouse, read_only=read_only, socket=socket))
    if not is_terminal():
        raise UsageError("the console needs a terminal", remedy="Use `specctl status` in scripts")
    from specctl.tui import run

    return run(where.socket, mouse=mouse, read_only=read_only)


def _wants_demo(error: NoDaemon) -> bool:
    """Ask the operator; only a plain yes counts."""
    say(f"{error}")
    print(f"Start the demo server (profile {DEMO_PROFILE}) now? [y/N] ", end="", file=sys.stderr, flush=True)  # noqa: T201
    return sys.stdin.readline().strip().lower() in ("y", "yes")
