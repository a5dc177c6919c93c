"""`specctl status`."""

from __future__ import annotations

import os
import sys

from specctl.cli.connect import connect
from specctl.cli.output import data, data_json
from specctl.cli.report import status_lines, watch_line
from specctl.core.events import Event
from specctl.core.exitcodes import ExitCode
from specctl.core.snapshot import Snapshot

WATCH_HZ = 1.0


def status(*, watch: bool = False, json: bool = False, socket: str | None = None) -> int:
    """Print what the daemon knows now; with `watch` again each second until interrupted."""
    client = connect(socket)
    if not watch:
        _show(client.snapshot(), json)
        return int(ExitCode.OK)
    first = client.snapshot()
    on_screen = not json and _is_screen()
    if on_screen:
        data("\x1b[2J")
    for value in client.stream(after=first.last_event_id, hz=WATCH_HZ):
        if isinstance(value, Event):
            continue
        if json:
            data_json(value, lines=True)
        elif on_screen:
            # Home, each line with its rest erased, then erase below: no flicker.
            data("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in status_lines(value)) + "\x1b[J")
        else:
            data(watch_line(value))
    return int(ExitCode.OK)


def _is_screen() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _show(snapshot: Snapshot, json: bool) -> None:
    if json:
        data_json(snapshot)
    else:
        data("\n".join(status_lines(snapshot)))
