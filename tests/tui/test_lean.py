"""The lean writer: whatever it leaves out, a terminal shows what was to be shown."""

from __future__ import annotations

import pyte
from hypothesis import given
from hypothesis import strategies as st
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style

from specctl.tui.lean import RESET, Shown, cells_of, change_pen, pen_of

SIZE = (20, 4)
STYLES = [
    "bold #ff0000 on #0f1419", "#c9d1d9 on #0f1419", "reverse #57c98a on #0f1419", "italic red on default",
    "dim white on blue", "bold underline color(200) on color(17)", "default on default",
]  # fmt: skip
TEXT = st.text(st.sampled_from("abc 01─⣿日本é"), min_size=0, max_size=8)
LINE = st.lists(st.tuples(TEXT, st.sampled_from(STYLES)), max_size=4)
FRAMES = st.lists(st.lists(LINE, min_size=SIZE[1], max_size=SIZE[1]), min_size=1, max_size=5)


def cells(line: list[tuple[str, str]]) -> list[tuple[str, str]]:
    got = list(cells_of([Segment(text, Style.parse(style)) for text, style in line], ColorSystem.TRUECOLOR))
    got = (got + [(" ", "")] * SIZE[0])[: SIZE[0]]
    if got[-1][0] and not got[-1][0].isascii() and got[-1][0] in "日本":
        got[-1] = (" ", "")
    return got


def look(screen: pyte.Screen) -> list[list[tuple[object, ...]]]:
    """What an eye sees: of a blank only the background and what underlines or reverses it."""
    rows = []
    for y in range(SIZE[1]):
        row = []
        for x in range(SIZE[0]):
            c = screen.buffer[y][x]
            drawn = c.data != " " or c.reverse or c.underscore
            row.append((c.data, c.bg, c.underscore, c.reverse, (c.fg, c.bold, c.italics) if drawn else None))
        rows.append(row)
    return rows


@given(FRAMES)
def test_differences_draw_the_same_picture_as_everything(frames: list[list[list[tuple[str, str]]]]) -> None:
    lean, whole = pyte.Screen(*SIZE), pyte.Screen(*SIZE)
    shown = Shown()
    shown.fit(SIZE)
    stream = pyte.Stream(lean)
    for frame in frames:
        stream.feed(shown.write((y, 0, cells(line)) for y, line in enumerate(frame)))
    fresh = Shown()
    fresh.fit(SIZE)
    pyte.Stream(whole).feed(fresh.write((y, 0, cells(line)) for y, line in enumerate(frames[-1])))
    assert look(lean) == look(whole)


def test_what_is_shown_already_is_not_sent() -> None:
    shown = Shown()
    shown.fit(SIZE)
    line = cells([("abc 10", STYLES[0])])
    assert shown.write([(0, 0, line)])
    assert shown.write([(0, 0, line)]) == ""
    shown.forget()
    shown.fit(SIZE)
    assert "abc" in shown.write([(0, 0, line)])


def test_one_digit_costs_a_few_bytes() -> None:
    shown = Shown()
    shown.fit(SIZE)
    shown.write([(2, 0, cells([("tok/s 2411", STYLES[1])]))])
    sent = shown.write([(2, 0, cells([("tok/s 2412", STYLES[1])]))])
    assert sent.endswith("2\x1b[m")
    assert len(sent) < 50


@given(st.sampled_from(STYLES), st.sampled_from(STYLES))
def test_a_change_of_pen_leaves_the_new_pen(old: str, new: str) -> None:
    pens = [pen_of(Style.parse(s)._make_ansi_codes(ColorSystem.TRUECOLOR)) for s in (old, new)]
    direct, stepped = pyte.Screen(1, 1), pyte.Screen(1, 1)
    pyte.Stream(direct).feed(change_pen(RESET, pens[1]) + "x")
    pyte.Stream(stepped).feed(change_pen(RESET, pens[0]) + change_pen(pens[0], pens[1]) + "x")
    assert direct.buffer[0][0] == stepped.buffer[0][0]
