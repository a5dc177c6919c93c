"""Every key and action against a scripted source, through the real application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import scripted as s
from scenes import NARROW_SIZE, SCENES, make_app, screen_text, settle
from textual.pilot import Pilot

from specctl.core.errors import Refused
from specctl.core.events import Event, EventKind
from specctl.core.modes import Mode
from specctl.core.snapshot import ModeInfo
from specctl.core.states import FlipState
from specctl.tui.actions import ACTIONS, RESERVED_KEYS, mode_keys
from specctl.tui.app import ConsoleApp


@asynccontextmanager
async def console(
    source: s.ScriptedSource, *, read_only: bool = False
) -> AsyncIterator[tuple[ConsoleApp, Pilot[int], Callable[[], str]]]:
    app = make_app(source, read_only=read_only)
    async with app.run_test(size=NARROW_SIZE) as pilot:
        await settle(pilot, lambda: source.told)
        yield app, pilot, lambda: screen_text(app)


@pytest.mark.parametrize(("key", "mode"), [("c", "chain"), ("o", "off")])
async def test_mode_keys_flip(key: str, mode: str) -> None:
    source = s.scene(s.snapshot("tree"))
    async with console(source) as (_, pilot, text):
        await pilot.press(key)
        await settle(pilot, lambda: source.calls == [("mode", mode)])
        assert f"({mode} " in text()
        assert "[TREE]" in text(), "a flip is not shown as done before its read-back"


async def test_t_flips_back_to_tree() -> None:
    source = s.scene(s.snapshot("off"))
    async with console(source) as (_, pilot, _text):
        await pilot.press("t")
        await settle(pilot, lambda: source.calls == [("mode", "tree")])


async def test_a_flip_is_followed_from_request_to_confirmation() -> None:
    source = s.scene(s.snapshot("tree"))
    source.hold = asyncio.Event()
    async with console(source) as (_, pilot, text):
        await pilot.press("c")
        source.now += 0.25
        await settle(pilot, lambda: "requested" in text())
        await settle(pilot, lambda: "250 ms" in text())
        source.hold.set()
        await settle(pilot, lambda: "accepted as e42" in text())
        source.push(s.snapshot(seq=2, at=s.NOW + 1, speculation=s.speculation("tree", pending=s.PENDING)))
        await settle(pilot, lambda: "acknowledged" in text())
        done = s.flip(42, "chain", "tree", reason="")
        source.push(
            s.snapshot("chain", seq=3, at=s.NOW + 2, speculation=s.speculation("chain", epoch=42, last_flip=done))
        )
        await settle(pilot, lambda: "[CHAIN]" in text())
        assert "e42 tree → chain confirmed in 38 ms" in text()


async def test_a_refusal_shows_its_reason_and_changes_nothing() -> None:
    source = s.scene(s.snapshot("tree"))
    source.error = Refused("the guard is latched", remedy="specctl policy clear-latch")
    async with console(source) as (_, pilot, text):
        await pilot.press("c")
        await settle(pilot, lambda: "the guard is latched" in text())
        assert "specctl policy clear-latch" in text()
        assert "[TREE]" in text()


async def test_a_held_key_asks_once() -> None:
    source = s.scene(s.snapshot("tree"))
    async with console(source) as (_, pilot, _text):
        await pilot.press("c", "c", "c", "c")
        await settle(pilot, lambda: source.calls != [])
        assert source.calls == [("mode", "chain")]


async def test_the_current_mode_is_not_asked_for_again() -> None:
    source = s.scene(s.snapshot("tree"))
    async with console(source) as (_, pilot, text):
        await pilot.press("t")
        await settle(pilot, lambda: "already in tree" in text())
        assert source.calls == []


async def test_a_second_mode_waits_for_the_first_answer() -> None:
    source = s.scene(s.snapshot("tree"))
    source.hold = asyncio.Event()
    async with console(source) as (_, pilot, _text):
        await pilot.press("c", "o")
        await settle(pilot, lambda: source.calls != [])
        assert source.calls == [("mode", "chain")]
        source.hold.set()


@pytest.mark.parametrize("name", ["patch-refused", "disconnected", "read-only", "starting", "failed"])
async def test_a_mode_that_cannot_run_is_not_asked_for(name: str) -> None:
    source = SCENES[name]()
    async with console(source) as (_, pilot, text):
        await pilot.press("c")
        await settle(pilot, lambda: "chain: " in text())
        assert source.calls == []


@pytest.mark.parametrize("key", ["n", "s", "r"])
async def test_read_only_forbids_every_command(key: str) -> None:
    source = s.scene(s.snapshot())
    async with console(source, read_only=True) as (app, pilot, text):
        await pilot.press(key)
        await settle(pilot, lambda: "read-only" in text())
        assert app.screen_stack[-1] is app.screen_stack[0]
        assert source.calls == []


@pytest.mark.parametrize(("key", "call"), [("s", "stop"), ("r", "restart")])
async def test_stop_and_restart_ask_and_cancel_is_the_default(key: str, call: str) -> None:
    source = s.scene(s.snapshot())
    async with console(source) as (_, pilot, text):
        await pilot.press(key)
        await settle(pilot, lambda: "It serves 8 requests now" in text())
        await pilot.press("enter")
        await settle(pilot, lambda: "It serves" not in text())
        assert source.calls == [], "Enter without a choice must not stop a server"
        await pilot.press(key)
        await settle(pilot, lambda: "It serves" in text())
        await pilot.press("escape")
        await settle(pilot, lambda: "It serves" not in text())
        assert source.calls == []
        await pilot.press(key)
        await settle(pilot, lambda: "It serves" in text())
        await pilot.press("right", "enter")
        await settle(pilot, lambda: source.calls == [(call, "")])
        await settle(pilot, lambda: "accepted" in text())


async def test_no_flip_behind_a_question() -> None:
    source = s.scene(s.snapshot())
    async with console(source) as (_, pilot, text):
        await pilot.press("s")
        await settle(pilot, lambda: "It serves" in text())
        await pilot.press("c", "o")
        await pilot.pause()
        assert source.calls == []


async def test_a_note_is_sent_and_its_letters_are_no_commands() -> None:
    source = s.scene(s.snapshot())
    async with console(source) as (_, pilot, text):
        await pilot.press("n")
        await settle(pilot, lambda: "event history" in text())
        await pilot.press("c", "o", "q", "s", "enter")
        await settle(pilot, lambda: source.calls == [("note", "coqs")])


async def test_an_empty_note_is_not_sent() -> None:
    source = s.scene(s.snapshot())
    async with console(source) as (_, pilot, text):
        await pilot.press("n")
        await settle(pilot, lambda: "event history" in text())
        await pilot.press("space", "enter")
        await settle(pilot, lambda: "event history" not in text())
        assert source.calls == []


async def test_help_lists_every_action_and_comes_back() -> None:
    async with console(s.scene(s.snapshot())) as (app, pilot, text):
        await pilot.resize_terminal(100, 60)
        await pilot.press("question_mark")
        await settle(pilot, lambda: "time to first token" in text())
        for action in ACTIONS:
            assert action.help in text(), action.id
        await pilot.press("escape")
        await settle(pilot, lambda: app.screen is app.screen_stack[0] and "[TREE]" in text())


async def test_log_screen_follows_holds_and_comes_back() -> None:
    source = s.scene(s.snapshot())
    async with console(source) as (_, pilot, text):
        await pilot.press("l")
        await settle(pilot, lambda: "30 lines" in text())
        await pilot.press("f")
        await settle(pilot, lambda: "held" in text())
        source.lines.append(replace(source.lines[-1], number=31, text="the newest line"))
        await settle(pilot, lambda: "31 lines" in text())
        assert "the newest line" not in text()
        await pilot.press("f")
        await settle(pilot, lambda: "the newest line" in text())
        await pilot.press("l")
        await settle(pilot, lambda: "[TREE]" in text())


async def test_q_detaches_with_0_and_stops_nothing() -> None:
    source = s.scene(s.snapshot())
    async with console(source) as (app, pilot, _text):
        await pilot.press("q")
        await pilot.pause()
    assert app.return_code == 0
    assert source.calls == []


async def test_window_key_changes_both_charts() -> None:
    async with console(s.scene(s.snapshot())) as (_, pilot, text):
        assert text().count("5m30s") == 2
        await pilot.press("w")
        await settle(pilot, lambda: "5m30s" not in text())


async def test_palette_flips_and_changes_the_theme() -> None:
    source = s.scene(s.snapshot())
    async with console(source) as (app, pilot, text):
        await pilot.press("ctrl+p")
        await settle(pilot)
        await pilot.press(*"themelight")
        await pilot.pause(0.3)
        await settle(pilot, lambda: "theme: light" in text())
        await pilot.press("enter")
        await settle(pilot, lambda: app.theme == "light")
        await pilot.press("ctrl+p")
        await settle(pilot)
        await pilot.press(*"modechain")
        await pilot.pause(0.3)
        await settle(pilot, lambda: "mode: chain" in text())
        await pilot.press("enter")
        await settle(pilot, lambda: source.calls == [("mode", "chain")])


async def test_reconnects_by_itself_and_says_so() -> None:
    source = s.scene(s.snapshot())
    async with console(source) as (_, pilot, text):
        source.push(s.LOST)
        await settle(pilot, lambda: "reconnecting" in text())
        assert "READY?" in text()
        source.now += 9
        source.push(s.LOST)
        await settle(pilot, lambda: "for 9s" in text() and "9s old" in text())
        source.push(s.snapshot(seq=9, at=s.NOW + 10))
        await settle(pilot, lambda: "reconnecting" not in text() and "READY?" not in text())


async def test_events_come_newest_first_and_a_flip_is_one_line() -> None:
    source = s.scene(s.snapshot(), with_events=False)
    async with console(source) as (_, pilot, text):
        for number, state in enumerate((FlipState.REQUESTED, FlipState.ACKNOWLEDGED, FlipState.CONFIRMED), 10):
            flip = s.flip(50, "off", "tree", state=state, latency_ms=77.0)
            source.push(Event(id=number, at=s.NOW + number, kind=EventKind.FLIP, message="", flip=flip))
        source.push(Event(id=13, at=s.NOW + 13, kind=EventKind.NOTE, message="the last"))
        await settle(pilot, lambda: "the last" in text())
        lines = text().splitlines()
        newest = next(i for i, line in enumerate(lines) if "the last" in line)
        assert "tree → off 77 ms" in lines[newest + 1]
        assert sum("tree → off" in line for line in lines) == 1


def test_mode_keys_are_first_letters_and_never_an_actions_key() -> None:
    modes = [
        Mode("tree", 2, 4, 16),
        Mode("turbo", 2, 2, 4),
        Mode("slow", 1, 1, 2),
        Mode("q", 1, 1, 2),
        Mode("off", 0, 1, 1),
    ]
    keys = mode_keys(modes)
    assert keys == {"t": "tree", "u": "turbo", "o": "slow", "1": "q", "f": "off"}
    assert not set(keys) & ({a.key for a in ACTIONS} | RESERVED_KEYS)


async def test_other_modes_get_their_own_keys() -> None:
    modes = (Mode("deep", 5, 4, 32), Mode("off", 0, 1, 1))
    spec = s.speculation("deep", modes=modes, by_mode=())
    assert spec.modes == tuple(ModeInfo(mode=m) for m in modes)
    source = s.scene(s.snapshot(speculation=replace(spec, mode="off")))
    async with console(source) as (_, pilot, _text):
        await pilot.press("d")
        await settle(pilot, lambda: source.calls == [("mode", "deep")])


async def test_a_broken_source_is_shown_and_tried_again() -> None:
    class Broken(s.ScriptedSource):
        tries = 0

        async def stream(self) -> AsyncIterator[s.Item]:
            self.tries += 1
            if self.tries == 1:
                raise ZeroDivisionError("a bug in the client")
            async for item in super().stream():
                yield item

    source = Broken(items=[s.snapshot()])
    app = make_app(source)
    async with app.run_test(size=NARROW_SIZE) as pilot:
        await settle(pilot, lambda: "ZeroDivisionError" in screen_text(app))
        await settle(pilot, lambda: "[TREE]" in screen_text(app))


async def test_a_broken_command_leaves_the_mode_keys_working() -> None:
    source = s.scene(s.snapshot("tree"))
    source.error = RuntimeError("a bug in the client")  # type: ignore[assignment]
    async with console(source) as (_, pilot, text):
        await pilot.press("c")
        await settle(pilot, lambda: "RuntimeError: a bug in the client" in text())
        source.error = None
        await pilot.press("o")
        await settle(pilot, lambda: source.calls[-1] == ("mode", "off"))
