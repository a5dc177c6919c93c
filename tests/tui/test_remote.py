"""The real client against a real daemon process: what the console is told, and that a lost daemon is told too."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from scenes import NARROW_SIZE, screen_text, settle

from specctl.core.errors import SpecctlError
from specctl.core.events import Event
from specctl.core.snapshot import Snapshot
from specctl.tui.app import ConsoleApp
from specctl.tui.glyphs import UNICODE
from specctl.tui.remote import RemoteSource
from specctl.tui.source import Item
from specctl.tui.store import LinkLost


@pytest.fixture
def home() -> Iterator[Path]:
    # A socket's path may have 100 bytes at most; pytest's own folders are longer.
    with tempfile.TemporaryDirectory(prefix="tui") as folder:
        yield Path(folder)


@pytest.fixture
def daemon(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    env = {**os.environ, "SPECCTL_HOME": str(home)}
    process = subprocess.Popen([sys.executable, "-m", "specctl.daemon"], env=env, stdout=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not (home / "run" / "specctld.sock").exists():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)
    yield process
    process.terminate()
    process.wait(30)


async def first(items: AsyncIterator[Item], kind: type[Item]) -> Item:
    async for item in items:
        if isinstance(item, kind):
            return item
    raise AssertionError("the stream ended")


async def test_snapshot_note_event_and_loss(home: Path, daemon: subprocess.Popen[bytes]) -> None:
    source = RemoteSource(home / "run" / "specctld.sock")
    stream = source.stream()
    shot = await first(stream, Snapshot)
    assert isinstance(shot, Snapshot)
    assert shot.daemon.pid == daemon.pid
    await source.note("from the console")
    while True:
        event = await first(stream, Event)
        assert isinstance(event, Event)
        if event.message == "from the console":
            break
    assert await source.history(60) is not None
    with pytest.raises(SpecctlError):
        await source.set_mode("tree")
    daemon.terminate()
    lost = await first(stream, LinkLost)
    assert isinstance(lost, LinkLost)
    assert lost.reason
    await source.close()


async def test_no_daemon_is_told_with_a_remedy(home: Path) -> None:
    source = RemoteSource(home / "none.sock")
    lost = await first(source.stream(), LinkLost)
    assert isinstance(lost, LinkLost)
    assert "none.sock" in lost.reason
    assert "specctl up" in lost.remedy


async def test_the_console_shows_the_daemon(home: Path, daemon: subprocess.Popen[bytes]) -> None:
    environ = {"HOME": str(home), "SPECCTL_THEME": "dark"}
    source = RemoteSource(home / "run" / "specctld.sock")
    app = ConsoleApp(source, socket="s", environ=environ, glyphs=UNICODE)
    async with app.run_test(size=NARROW_SIZE) as pilot:
        await settle(pilot, lambda: "STOPPED" in screen_text(app))
        await pilot.press("s")
        await settle(pilot, lambda: "no server runs" in screen_text(app))
    await source.close()
