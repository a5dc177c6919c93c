"""Charts on one time axis: area by time bucket, coloured by mode, with gaps where nothing is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from specctl.core.events import HistoryPoint
from specctl.core.states import FlipState
from specctl.tui.actions import marker_letters
from specctl.tui.format import duration
from specctl.tui.store import View
from specctl.tui.text import Line, Role, Span
from specctl.tui.views.frame import Frame, fill, header, mode_role

LABEL = 6
LEAST_TOP = 1e-6
STEPS_S = (1, 2, 3, 5, 10, 15, 30, 60, 120, 300)
_LEFT = (0x40, 0x04, 0x02, 0x01)
_RIGHT = (0x80, 0x20, 0x10, 0x08)
_BLOCKS = " ▁▂▃▄▅▆▇█"
_LETTERS = " .#"
DOTS = {"braille": 4, "block": 8, "ascii": 2}


@dataclass(frozen=True, slots=True)
class Buckets:
    """`values`, oldest first: None is a gap. `modes` and `markers` have one entry a cell of `per_cell` values."""

    values: tuple[float | None, ...]
    modes: tuple[str | None, ...]
    markers: tuple[str, ...]
    step_s: int
    per_cell: int


def step_for(window_s: float, columns: int) -> int:
    """Seconds a column: the smallest round number with which `columns` cover the window."""
    return next((s for s in STEPS_S if s * columns >= window_s), STEPS_S[-1])


def nice_top(value: float) -> float:
    """The smallest of 1, 1.5, 2, 3, 4, 5, 6, 8 times a power of ten that is not below `value`; 1 for next to nothing."""
    if value < LEAST_TOP:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((m * power for m in (1, 1.5, 2, 3, 4, 5, 6, 8) if m * power >= value * 0.9999), 10 * power)


def flip_marks(view: View, start: float) -> list[tuple[float, str]]:
    """(time, mode) of every flip since `start`: confirmed events, and changes of mode in the history."""
    marks: list[tuple[float, str]] = []
    before: str | None = None
    for point in view.points:
        if point.mode is None:
            continue
        if before is not None and point.mode != before and point.at >= start:
            marks.append((point.at, point.mode))
        before = point.mode
    for event in view.events:
        flip = event.flip
        if flip and flip.state is FlipState.CONFIRMED and event.at >= start:
            marks.append((flip.confirmed_at or event.at, flip.to_mode))
    return sorted(marks)


def bucketize(
    view: View, pick: Callable[[HistoryPoint], float | None], cells: int, per_cell: int, letters: Mapping[str, str]
) -> Buckets:
    """Means by bucket. Buckets lie on round times, so that the picture moves a whole cell at a time."""
    columns = cells * per_cell
    step = step_for(view.window_s, columns)
    last_cell = math.floor((view.clock or 0.0) / (step * per_cell))
    first = (last_cell - cells + 1) * per_cell
    sums, counts = [0.0] * columns, [0] * columns
    modes: list[str | None] = [None] * cells
    for point in reversed(view.points):
        column = math.floor(point.at / step) - first
        if column < 0:
            break
        if column >= columns:
            continue
        cell = column // per_cell
        if modes[cell] is None:
            modes[cell] = point.mode
        value = pick(point)
        if value is not None and math.isfinite(value):
            sums[column] += value
            counts[column] += 1
    values = [s / c if c else None for s, c in zip(sums, counts, strict=True)]
    if step <= 2:
        # One reading a second, with jitter, leaves a bucket of a second empty now and then; that is no gap.
        for i in range(1, columns - 1):
            a, b = values[i - 1], values[i + 1]
            if values[i] is None and a is not None and b is not None:
                values[i] = (a + b) / 2
    markers = [""] * cells
    for at, mode in flip_marks(view, first * step):
        cell = (math.floor(at / step) - first) // per_cell
        if 0 <= cell < cells:
            markers[cell] = letters.get(mode, mode[:1].upper())
    return Buckets(tuple(values), tuple(modes), tuple(markers), step, per_cell)


def _levels(values: Sequence[float | None], low: float, high: float, most: int) -> list[int]:
    """Height of each value in steps of the glyph; 0 only for a gap, so that a known zero shows as a base line."""
    span = (high - low) or 1.0
    return [0 if v is None else max(1, min(most, round((v - low) / span * most))) for v in values]


@lru_cache(8192)
def _column(kind: str, rows: int, levels: tuple[int, ...]) -> tuple[str, ...]:
    """The characters of one cell column, top first, for the levels that the cell is wide."""
    dots = DOTS[kind]
    column = []
    for row in range(rows - 1, -1, -1):
        parts = [max(0, min(dots, level - row * dots)) for level in levels]
        if kind == "braille":
            bits = sum(_LEFT[: parts[0]]) | sum(_RIGHT[: parts[1]])
            column.append(chr(0x2800 | bits) if bits else " ")
        else:
            column.append((_BLOCKS if kind == "block" else _LETTERS)[parts[0]])
    return tuple(column)


def plot(buckets: Buckets, low: float, high: float, rows: int, kind: str) -> list[list[str]]:
    """`rows` rows of one character a cell, top first. kind: braille (2 by 4 dots a cell), block (1 by 8) or ascii."""
    levels = _levels(buckets.values, low, high, rows * DOTS[kind])
    per = buckets.per_cell
    columns = [_column(kind, rows, tuple(levels[i : i + per])) for i in range(0, len(levels), per)]
    return [list(row) for row in zip(*columns, strict=True)]


def _runs(chars: Sequence[str], roles: Sequence[Role]) -> Line:
    """Neighbours of one role as one span."""
    spans: list[Span] = []
    start = 0
    for role, group in groupby(roles):
        end = start + sum(1 for _ in group)
        spans.append(Span("".join(chars[start:end]), role))
        start = end
    return tuple(spans)


def _chart(
    frame: Frame,
    title: str,
    pick: Callable[[HistoryPoint], float | None],
    scale: Callable[[Sequence[float]], tuple[float, float]],
    label: Callable[[float], str],
) -> list[Line]:
    view, glyphs = frame.view, frame.glyphs
    cells = frame.width - LABEL - 1
    rows = frame.height - 2
    if cells < 4 or rows < 1:
        return fill([header(frame, title)], frame.height)
    per_cell = 2 if glyphs.chart == "braille" else 1
    buckets = bucketize(view, pick, cells, per_cell, marker_letters(view))
    low, high = scale([v for v in buckets.values if v is not None])
    picture = plot(buckets, low, high, rows, glyphs.chart)
    known = {mode: mode_role(frame, mode) for mode in set(buckets.modes)}
    roles = [known[mode] for mode in buckets.modes]
    lines = [header(frame, title, [Span(duration(cells * per_cell * buckets.step_s), Role.DIM)])]
    for index, chars in enumerate(picture):
        share = 1 - index / (rows - 1) if rows > 1 else 1.0
        wanted = index in (0, rows - 1) or (rows >= 5 and rows % 2 == 1 and index == rows // 2)
        text = label(low + (high - low) * share) if wanted else ""
        row_roles = list(roles)
        for cell, letter in enumerate(buckets.markers):
            if letter and chars[cell] == " ":
                chars[cell], row_roles[cell] = glyphs.marker, Role.RULE
        lines.append((Span(f"{text:>{LABEL - 1}} ", Role.DIM), *_runs(chars, row_roles)))
    axis = [letter or glyphs.rule for letter in buckets.markers]
    axis_roles = [Role.STRONG if letter else Role.RULE for letter in buckets.markers]
    lines.append((Span(" " * LABEL), *_runs(axis, axis_roles)))
    return fill(lines, frame.height)


def _short(value: float) -> str:
    """A round number in as few characters as it needs: 0, 250, 1.5k, 3k."""
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:g}{unit}"
    return f"{value:g}"


def tokens_chart(frame: Frame) -> list[Line]:
    """tok/s; the scale starts at 0 and ends at a round number."""
    return _chart(
        frame,
        "tok/s",
        lambda p: p.tokens_per_second,
        lambda values: (0.0, nice_top(max(values, default=0.0))),
        _short,
    )


def length_chart(frame: Frame) -> list[Line]:
    """L; the scale goes from 1 to the most that the modes allow, so that it never moves."""
    modes = frame.snapshot.speculation.modes if frame.snapshot else ()
    most = max((m.mode.max_acceptance_length for m in modes), default=2)
    return _chart(
        frame,
        "L  acceptance length",
        lambda p: p.acceptance_length,
        lambda values: (1.0, float(max(most, 2, math.ceil(max(values, default=1.0))))),
        lambda v: f"{v:.1f}",
    )
