"""Where each panel goes: a pure function of the terminal's size and of what there is to show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from specctl.core.states import ServerState
from specctl.tui.text import Line
from specctl.tui.views import chart, footer, gpus, modes, numbers, server, tables
from specctl.tui.views.frame import Frame

Painter = Callable[[Frame], list[Line]]

PAINTERS: dict[str, Painter] = {
    "server": server.server_line,
    "alert": server.alert_lines,
    "modes": modes.mode_bar,
    "flip": modes.flip_line,
    "numbers": numbers.numbers,
    "stage": server.stage,
    "tokens": chart.tokens_chart,
    "length": chart.length_chart,
    "gpus": gpus.gpus,
    "by-mode": tables.by_mode,
    "events": tables.events,
    "log": tables.log_tail,
    "footer": footer.footer,
}
WIDE = 120
LEAST_CHART = 5
LOW = 18
BY_MODE = 46


class Place(NamedTuple):
    panel: str
    x: int
    y: int
    width: int
    height: int


class _Stack:
    """Panels from the top down; what lies below the last line that is free is left out."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.room, self.y = width, height, 0
        self.places: list[Place] = []

    def row(self, height: int, *panels: tuple[str, int]) -> None:
        """Panels beside each other, given as (name, width); a width of 0 takes the rest."""
        height = min(height, self.room)
        if height <= 0:
            return
        x = 0
        for name, width in panels:
            width = width or self.width - x
            self.places.append(Place(name, x, self.y, width, height))
            x += width
        self.y += height
        self.room -= height


def plan(frame: Frame) -> list[Place]:
    """Every panel's place in a terminal of frame.width by frame.height cells."""
    stack = _Stack(frame.width, frame.height - 1)
    stack.row(1, ("server", 0))
    stack.row(len(server.alert_lines(frame)), ("alert", 0))
    stack.row(1, ("modes", 0))
    stack.row(1, ("flip", 0))
    if server.takes_stage(frame):
        _plan_stage(stack, frame)
    else:
        want = numbers.numbers_height(frame)
        if frame.height < LOW:
            want -= 1
        stack.row(want if stack.room > want else 2, ("numbers", 0))
        (_plan_wide if frame.width >= WIDE and stack.room >= 26 else _plan_narrow)(stack, frame)
    return [*stack.places, Place("footer", 0, frame.height - 1, frame.width, 1)]


def _plan_stage(stack: _Stack, frame: Frame) -> None:
    """Steps or failure first; GPU memory and the log matter most while a server starts or has just died."""
    room = stack.room
    if frame.snapshot is None:
        stack.row(room, ("stage", 0))
        return
    steps = len(frame.snapshot.server.steps)
    ended = frame.snapshot.server.state not in (ServerState.PREFLIGHT, ServerState.STARTING)
    table = min(gpus.gpus_rows(frame), max(2, room // 4))
    lower = max(4, room // 6)
    wanted = room - table - (lower if room >= 18 else 0) - (0 if ended else 3)
    stack.row(max(3, wanted if ended else min(wanted, steps + 3)), ("stage", 0))
    stack.row(table, ("gpus", 0))
    if room >= 18:
        stack.row(lower, ("events", 0))
    stack.row(stack.room, ("log", 0))


def _plan_narrow(stack: _Stack, frame: Frame) -> None:
    half = frame.width // 2
    table = gpus.gpus_rows(frame)
    lists = tables.by_mode_rows(frame)
    room = stack.room
    least = LEAST_CHART - (frame.height < LOW)
    if frame.snapshot is not None and table - 1 > max(4, room - least - lists - 3):
        across = gpus.across(frame.width, table - 1, max(1, room - least - lists - 1))
        table = 1 + -(-(table - 1) // across)
    spare = room - least - table - lists
    log = 0 if spare < 2 else min(6, 2 + (spare - 2) // 3)
    if spare < 0:
        # Too low for all: the lists give way first, then the table shrinks to the GPUs in trouble.
        lists = lists if room >= 12 else 0
        table = min(table, max(2, room - least - lists))
        spare = 0
    charts = max(3, room - table - lists - log)
    # An odd number of rows has a middle for the label.
    charts -= 1 if charts > 5 and charts % 2 == 0 else 0
    stack.row(charts, ("tokens", half), ("length", 0))
    stack.row(table, ("gpus", 0))
    stack.row(lists, ("by-mode", min(half + 4, 44)), ("events", 0))
    stack.row(stack.room, ("log", 0))


def _plan_wide(stack: _Stack, frame: Frame) -> None:
    half = frame.width // 2
    table = max(gpus.gpus_rows(frame), tables.by_mode_rows(frame))
    room = stack.room
    charts = max(9, min(15, (room - table - 6) // 2)) | 1
    stack.row(charts, ("tokens", half), ("length", 0))
    stack.row(min(table, max(4, room - charts - 8)), ("gpus", frame.width - BY_MODE), ("by-mode", 0))
    stack.row(max(4, min(8, stack.room // 2)), ("events", 0))
    stack.row(stack.room, ("log", 0))


def paint(frame: Frame, place: Place) -> list[Line]:
    """The lines of one panel at its place."""
    lines = PAINTERS[place.panel](replace(frame, width=place.width, height=place.height))
    return frame.glyphs.lines(lines)
