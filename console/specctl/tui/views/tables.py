"""The tables and lists under the charts: numbers by mode, events, the log's tail."""

from __future__ import annotations

from specctl.core.events import Event, EventKind
from specctl.core.snapshot import ModeNumbers
from specctl.tui.format import DASH, adaptive, clock, compact, is_stale, number
from specctl.tui.text import Line, Role, Span, cell, crop
from specctl.tui.views.frame import Frame, fill, header, mode_role
from specctl.tui.views.modes import flip_words, short_flip

# Below this a list shows the short form of an event.
NARROW = 64

_COLUMNS = (("rounds", 8), ("tokens", 8), ("L", 6), ("tok/s", 8))


def by_mode_rows(frame: Frame) -> int:
    return 1 + (len(frame.snapshot.speculation.modes) if frame.snapshot else 0)


def by_mode(frame: Frame) -> list[Line]:
    """Counters and L of this run by mode; only the live mode has a speed."""
    titles = [cell(title, width, Role.DIM, right=True) for title, width in _COLUMNS]
    lines = [header(frame, "by mode", columns=[Span("  "), *titles, Span(" ")])]
    if frame.snapshot is None:
        return fill(lines, frame.height)
    speculation = frame.snapshot.speculation
    known = {row.mode: row for row in speculation.by_mode}
    for info in speculation.modes:
        name = info.mode.name
        mark = ">" if name == speculation.mode else " "
        row = known.get(name)
        lines.append(
            crop(
                (
                    Span(mark, Role.STRONG),
                    cell(name, 10, mode_role(frame, name)),
                    Span(" "),
                    *_cells(frame, row, live=name == speculation.mode),
                ),
                frame.width,
            )
        )
    return fill(lines, frame.height)


def _cells(frame: Frame, row: ModeNumbers | None, *, live: bool) -> tuple[Span, ...]:
    if row is None:
        return tuple(cell(DASH, width, Role.DIM, right=True) for _, width in _COLUMNS)
    lag = frame.view.lag
    length, speed = row.acceptance_length, row.tokens_per_second
    return (
        cell(compact(row.rounds), 8, right=True),
        cell(compact(row.committed_tokens), 8, right=True),
        cell(number(length.value, 2), 6, Role.STALE if is_stale(length, lag) else Role.TEXT, right=True),
        cell(adaptive(speed.value) if live else DASH, 8, Role.STALE if is_stale(speed, lag) else Role.TEXT, right=True),
    )


_KIND_ROLES = {EventKind.ALERT: Role.BAD, EventKind.STATE: Role.STRONG, EventKind.NOTE: Role.KEY}


def event_line(frame: Frame, event: Event) -> Line:
    """Time, kind and what happened; a flip with its route, outcome, latency and who."""
    head = (Span(f" {clock(event.at)} ", Role.DIM),)
    if event.flip is not None and frame.width < NARROW:
        return (*head, *short_flip(frame, event.flip))
    if event.flip is not None:
        return (*head, Span("flip ", Role.DIM), *flip_words(frame, event.flip))
    role = _KIND_ROLES.get(event.kind, Role.TEXT)
    kind = f"{event.kind} " if frame.width >= NARROW or event.kind is EventKind.ALERT else ""
    return (*head, Span(kind, Role.DIM), Span(frame.foreign(event.message), role))


def events(frame: Frame) -> list[Line]:
    """Newest first. A flip's earlier steps are left out once its outcome is known."""
    lines = [header(frame, "events")]
    final: set[int] = set()
    for event in reversed(frame.view.events):
        if len(lines) >= frame.height:
            break
        flip = event.flip
        if flip is not None:
            if flip.epoch in final:
                continue
            final.add(flip.epoch)
        lines.append(crop(event_line(frame, event), frame.width))
    if len(lines) == 1 and frame.height > 1:
        lines.append((Span(" none yet", Role.DIM),))
    return fill(lines, frame.height)


def log_tail(frame: Frame) -> list[Line]:
    """The newest lines of the server's output."""
    run = frame.snapshot.server.run if frame.snapshot else None
    lines = [header(frame, "log", [Span(f"run {run}", Role.DIM)] if run is not None else [])]
    room = max(0, frame.height - 1)
    newest = frame.view.log[-room:] if room else ()
    lines.extend(crop((Span(" "), Span(frame.foreign(line.text), Role.TEXT)), frame.width) for line in newest)
    if not newest and room:
        lines.append((Span(" no lines yet", Role.DIM),))
    return fill(lines, frame.height)
