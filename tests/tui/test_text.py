"""Foreign text: whatever it holds, a line of the screen stays a line, and no sequence reaches the terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import replace

import pytest
import scripted as s
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from scenes import NARROW_SIZE, WIDE_SIZE, make_app, screen_text, settle

from specctl.core.events import Event, EventKind, LogLine
from specctl.core.snapshot import Snapshot
from specctl.core.states import PatchStatus, ServerState
from specctl.tui.text import Span, beside, clean, crop, ellipsize, pad, spread, take_fitting, width_of, wrap

NASTY = [
    "[bold red]x[/] [/] [/bold] [@click=app.detach]y[/]",
    "\x1b[2J\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b[?1049l",
    "a\rb\nc\td\x00e\x7f\x9b31m",
    "‮evil‬\u200b\u2066x\u2069\ufeff\u2028",
    "日本語のモデル👩‍👩‍👧‍👦" + "e" + "\u0301" * 40,
    "$(reboot) `id` %s {0} \\x1b[31m",
    "x" * 5000,
    "\ud800 lone surrogate",
]


@given(st.text())
def test_clean_leaves_nothing_that_a_terminal_obeys(text: str) -> None:
    out = clean(text)
    assert not any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in out)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_clean_keeps_printable_ascii(text: str) -> None:
    assert clean(text) == text[:2000]


def test_clean_drops_colours_and_shows_other_escapes() -> None:
    assert clean("\x1b[1;31mred\x1b[0m") == "red"
    assert clean("\x1b[2J\x07") == "^[[2J^G"
    assert clean("a\x9bb") == "a<9b>b"


@given(st.text(), st.integers(0, 40))
def test_ellipsize_never_exceeds_its_width(text: str, width: int) -> None:
    assert cell_len(ellipsize(clean(text), width)) <= width


LINES = st.lists(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cf", "Mn", "Me"]), max_size=12).map(Span),
    max_size=6,
)


@given(LINES, LINES, st.integers(1, 60))
def test_lines_keep_to_their_width(left: list[Span], right: list[Span], width: int) -> None:
    assert width_of(crop(left, width)) <= width
    assert width_of(pad(left, width)) == width
    assert width_of(spread(left, right, width)) <= max(width, 1)
    assert width_of(take_fitting([tuple(left), tuple(right)], width)) <= width
    assert width_of(beside(left, (), width)) == width


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cf"]), max_size=200), st.integers(2, 50))
def test_wrap_loses_no_letter(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert all(cell_len(line) <= width for line in lines)


def poisoned(text: str) -> tuple[Snapshot, list[Event], list[LogLine]]:
    """A snapshot with `text` in every field that comes from outside."""
    base = s.snapshot()
    flip = s.flip(actor=text, reason=text)
    spec = s.speculation(actor=text, reason=text, patch_reason=text, last_flip=flip)
    spec = replace(spec, modes=tuple(replace(m, unavailable=text) if m.mode.name == "off" else m for m in spec.modes))
    server = replace(
        base.server,
        state=ServerState.DEGRADED,
        **dict.fromkeys(("reason", "remedy", "model", "draft", "profile", "url", "engine_version"), text),
        blockers=(text,),
        last_lines=(text,),
    )
    gpus = (s.gpu(0, name=text, throttle=(text,)), s.gpu(1, lost=text))
    daemon = replace(base.daemon, host=text, version=text, data_dir=text)
    shot = replace(base, server=server, speculation=spec, gpus=gpus, gpu_note=text, daemon=daemon)
    events = [
        Event(id=90, at=s.NOW, kind=EventKind.NOTE, message=text),
        Event(id=91, at=s.NOW, kind=EventKind.FLIP, message=text, flip=flip),
    ]
    return shot, events, [LogLine(run=17, number=n, text=text) for n in range(1, 20)]


def as_failed(shot: Snapshot) -> Snapshot:
    return replace(shot, server=replace(shot.server, state=ServerState.FAILED), gpus=())


def as_refused(shot: Snapshot) -> Snapshot:
    return replace(shot, speculation=replace(shot.speculation, patch=PatchStatus.REFUSED))


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
@pytest.mark.parametrize("change", [lambda shot: shot, as_failed, as_refused], ids=["degraded", "failed", "refused"])
async def test_no_field_breaks_the_screen(text: str, change: Callable[[Snapshot], Snapshot]) -> None:
    shot, events, lines = poisoned(text)
    source = s.ScriptedSource(items=[*events, change(shot)], points=s.history(), lines=lines)
    app = make_app(source)
    async with app.run_test(size=NARROW_SIZE) as pilot:
        await settle(pilot, lambda: source.told and bool(app.view.log))
        for key in ("question_mark", "escape", "l", "escape", "s", "escape"):
            await pilot.press(key)
            await settle(pilot)
            check(screen_text(app))
        await pilot.resize_terminal(*WIDE_SIZE)
        await settle(pilot)
        check(screen_text(app))


def check(text: str) -> None:
    assert not any(unicodedata.category(char) in ("Cc", "Cf", "Cs") for char in text if char != "\n")
