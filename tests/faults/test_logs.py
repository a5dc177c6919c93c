"""The server's output under stress: the child is never blocked, and what it wrote can be read."""

from __future__ import annotations

from faults.rig import Rig
from specctl.core.events import EventKind
from specctl.core.states import ServerState


async def test_flood_is_rotated_and_the_server_goes_on(rig: Rig) -> None:
    rig.settings(log_max_bytes=1 << 20, log_keep_files=2)
    rig.script(flood_rate=20000.0)
    await rig.up()
    folder = rig.supervisor.current.folder
    await rig.until(lambda: (folder / "server.log.2").exists(), "second rotation", 60.0)
    before = rig.supervisor.current.log.next_number
    await rig.until(lambda: rig.supervisor.current.log.next_number > before, "more lines")
    assert rig.info.state is ServerState.READY
    log = rig.supervisor.current.log
    assert log.first_number > 1 or len(list(folder.glob("server.log*"))) == 3
    page = log.page(tail=50)
    numbers = [line.number for line in page.lines]
    assert numbers == list(range(numbers[0], numbers[0] + 50))


async def test_deleted_log_file_does_not_stop_the_server(rig: Rig) -> None:
    rig.settings(log_max_bytes=1 << 18)
    rig.script(flood_rate=2000.0)
    await rig.up()
    path = rig.supervisor.current.folder / "server.log"
    path.unlink()
    await rig.until(lambda: any("was deleted" in e.message for e in rig.events.page(0, 999)), "alert")
    before = rig.supervisor.current.log.next_number
    await rig.until(lambda: rig.supervisor.current.log.next_number > before + 10, "lines after deletion")
    assert rig.info.state is ServerState.READY
    alerts = [e for e in rig.events.page(0, 999) if e.kind is EventKind.ALERT]
    assert len(alerts) == 1


async def test_very_long_line_is_cut_and_marked(rig: Rig) -> None:
    rig.script(long_line=300_000)
    await rig.up()
    log = rig.supervisor.current.log
    log.refresh()
    longest = max(log.page(tail=100).lines, key=lambda line: len(line.text))
    assert len(longest.text) < 70_000
    assert longest.text.endswith("longer than 64 KiB]")
    assert any("ready to roll" in line.text for line in log.page(tail=100).lines)
