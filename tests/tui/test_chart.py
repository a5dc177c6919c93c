"""The chart: buckets, gaps, markers, and pictures that say what the numbers say."""

from __future__ import annotations

import math

import pytest
import scripted as s
from hypothesis import given
from hypothesis import strategies as st

from specctl.core.events import HistoryPoint
from specctl.tui.glyphs import ASCII, BLOCK, UNICODE, Glyphs
from specctl.tui.store import Store, View
from specctl.tui.text import plain, width_of
from specctl.tui.views.chart import DOTS, Buckets, bucketize, length_chart, nice_top, plot, step_for, tokens_chart
from specctl.tui.views.frame import Frame

VALUES = st.lists(st.one_of(st.none(), st.floats(0, 1e6)), min_size=2, max_size=80).filter(lambda v: len(v) % 2 == 0)


def view_of(points: list[HistoryPoint], mode: str = "tree") -> View:
    store = Store(now=0.0)
    store.apply(s.snapshot(mode), 0.0)
    return store.prefill(points, 0.0)


def heights(rows: list[list[str]], kind: str) -> list[int]:
    """Dots of each half cell (braille) or cell, counted in the picture."""
    out = []
    for column in zip(*rows, strict=True):
        if kind == "braille":
            bits = [ord(c) - 0x2800 if c != " " else 0 for c in column]
            out += [sum((b & mask).bit_count() for b in bits) for mask in (0x47, 0xB8)]
        else:
            levels = " ▁▂▃▄▅▆▇█" if kind == "block" else " .#"
            out.append(sum(levels.index(c) for c in column))
    return out


@given(VALUES, st.sampled_from(["braille", "block", "ascii"]), st.integers(1, 12))
def test_a_gap_is_empty_and_a_known_value_never_is(values: list[float | None], kind: str, rows: int) -> None:
    per = 2 if kind == "braille" else 1
    buckets = Buckets(tuple(values), (None,) * (len(values) // per), ("",) * (len(values) // per), 1, per)
    top = nice_top(max((v for v in values if v is not None), default=0.0))
    drawn = heights(plot(buckets, 0.0, top, rows, kind), kind)
    for value, height in zip(values, drawn, strict=True):
        assert (height == 0) == (value is None)
        if value is not None:
            assert abs(height - value / top * rows * DOTS[kind]) <= 1


@given(st.floats(1e-6, 1e12))
def test_nice_top_is_round_and_close(value: float) -> None:
    top = nice_top(value)
    assert value * 0.9999 <= top <= value * 2.01


@pytest.mark.parametrize(("window", "columns", "step"), [(300, 300, 1), (300, 66, 5), (900, 66, 15), (3600, 66, 60)])
def test_step_is_the_smallest_that_covers_the_window(window: int, columns: int, step: int) -> None:
    assert step_for(window, columns) == step


def test_missing_seconds_are_a_gap_but_jitter_is_not() -> None:
    seconds = [n for n in range(200, 0, -1) if not 50 <= n < 70 and n != 30]
    points = [HistoryPoint(at=s.NOW - n, mode="tree", tokens_per_second=10.0) for n in seconds]
    values = bucketize(view_of(points), lambda p: p.tokens_per_second, 160, 2, {}).values
    known = [v is not None for v in values]
    first, last = known.index(True), len(known) - known[::-1].index(True)
    assert known[first:last].count(False) == 20


def test_nan_is_a_gap() -> None:
    points = [HistoryPoint(at=s.NOW - n, mode="tree", tokens_per_second=math.nan) for n in range(50, 0, -1)]
    values = bucketize(view_of(points), lambda p: p.tokens_per_second, 40, 2, {}).values
    assert [v for v in values if v is not None] == [2412.0], "only the snapshot's own second is known"


def test_every_flip_has_its_letter() -> None:
    view = view_of(s.history())
    marks = [m for m in bucketize(view, lambda p: p.tokens_per_second, 60, 2, {"tree": "T", "chain": "C"}).markers if m]
    assert marks == ["C", "T"]


@pytest.mark.parametrize("glyphs", [UNICODE, BLOCK, ASCII], ids=["braille", "block", "ascii"])
@pytest.mark.parametrize("size", [(10, 3), (30, 4), (40, 7), (80, 15), (6, 2), (1, 1)])
def test_charts_fill_exactly_their_place(glyphs: Glyphs, size: tuple[int, int]) -> None:
    frame = Frame(view_of(s.history()), *size, glyphs)
    for lines in (tokens_chart(frame), length_chart(frame)):
        assert len(lines) == size[1]
        assert all(width_of(line) <= size[0] for line in lines)


def test_off_has_no_acceptance_length_in_the_chart() -> None:
    view = view_of(s.history("off"), "off")
    lines = length_chart(Frame(view, 80, 9, UNICODE))
    assert plain(lines[-2])[-10:].strip() == ""
    assert "O" in plain(lines[-1])
