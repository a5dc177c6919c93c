"""The screen of every state as text. SPECCTL_UPDATE_DUMPS=1 writes the files anew; read the diff before committing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from scenes import LOW_SIZE, NARROW_SIZE, SCENES, WIDE_SIZE, make_app, screen_text, settle

from specctl.tui.glyphs import ASCII, BLOCK, UNICODE, Glyphs

DUMPS = Path(__file__).parent / "dumps"
LOW_SCENES = ("tree", "8-gpus", "starting", "failed", "disconnected", "lost-gpu")
CASES = [
    *((name, size, UNICODE) for name in SCENES for size in (NARROW_SIZE, WIDE_SIZE)),
    *((name, LOW_SIZE, UNICODE) for name in LOW_SCENES),
    ("tree", NARROW_SIZE, ASCII),
    ("starting", NARROW_SIZE, ASCII),
    ("tree", NARROW_SIZE, BLOCK),
]


def name_of(case: tuple[str, tuple[int, int], Glyphs]) -> str:
    scene, (width, height), glyphs = case
    return f"{scene}-{width}x{height}" + ("" if glyphs is UNICODE else f"-{glyphs.chart}")


async def dump(scene: str, size: tuple[int, int], glyphs: Glyphs) -> str:
    source = SCENES[scene]()
    app = make_app(source, glyphs=glyphs)
    async with app.run_test(size=size) as pilot:
        await settle(pilot, lambda: source.told and (app.view.log != () or not source.lines or source.now > 100))
        for key in SCENES[scene].keys:
            await pilot.press(key)
            await settle(pilot)
            await pilot.pause(0.1)
        return screen_text(app)


@pytest.mark.parametrize("case", CASES, ids=name_of)
async def test_screen(case: tuple[str, tuple[int, int], Glyphs]) -> None:
    text = await dump(*case)
    path = DUMPS / f"{name_of(case)}.txt"
    if os.environ.get("SPECCTL_UPDATE_DUMPS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert len(lines) == case[1][1]
    if case[2] is ASCII:
        assert text.isascii()
