"""Ownership of processes: whatever a server leaves behind is found, named and ended, and nothing else is."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time

import pytest

from faults.rig import Rig, marked
from specctl.core.states import ServerState
from specctl.daemon import process
from specctl.daemon.process import Identity


async def test_double_forked_grandchild_dies_with_the_server(rig: Rig, daemon_id: str) -> None:
    """A scheduler that was reparented away, in a session of its own, must not keep its GPU memory."""
    rig.script(grandchild="session")
    await rig.up()
    assert len(marked(daemon_id)) == 2
    await rig.stop()
    await rig.until_state(ServerState.STOPPED)
    assert marked(daemon_id) == []


async def test_grandchild_without_marker_in_its_environment_dies_too(rig: Rig) -> None:
    """Process titles may overwrite the environment; who was proven once stays proven."""
    rig.script(grandchild="bare")
    await rig.up()
    run = rig.supervisor.current
    assert run is not None
    held = [member.pid for member in run.members.scan() if member.pid != rig.pid]
    assert len(held) == 1
    assert process.read_marker(held[0]) is None
    await rig.stop()
    await rig.until_state(ServerState.STOPPED)
    stat = process.read_stat(held[0])
    assert stat is None or stat.is_zombie


async def test_sibling_child_of_the_daemon_survives_stop(rig: Rig) -> None:
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    stranger = subprocess.Popen(sleeper, start_new_session=True)
    sibling = subprocess.Popen(sleeper)
    try:
        rig.script(grandchild="session")
        await rig.up()
        await rig.stop()
        await rig.until_state(ServerState.STOPPED)
        assert sibling.poll() is None
        assert stranger.poll() is None
    finally:
        for child in (sibling, stranger):
            child.kill()
            child.wait()


async def test_exit_of_the_parent_is_not_the_end_while_descendants_live(rig: Rig, daemon_id: str) -> None:
    rig.script(grandchild="session")
    await rig.up()
    seen_without_parent = []

    def watch() -> bool:
        alive = [pid for pid in marked(daemon_id) if pid != parent]
        parent_gone = process.read_stat(parent) is None or process.read_stat(parent).is_zombie
        if parent_gone and alive:
            seen_without_parent.append(rig.info.state)
        return rig.info.state is ServerState.STOPPED

    parent = rig.pid
    await rig.stop()
    await rig.until(watch, "STOPPED")
    assert seen_without_parent
    assert set(seen_without_parent) == {ServerState.STOPPING}


async def test_blockers_are_named_while_a_stop_takes_time(rig: Rig) -> None:
    rig.script(ignore_term=True)
    rig.settings(stop_timeout_s=2.5)
    await rig.up()
    pid = rig.pid
    await rig.stop()
    blockers = await rig.until(lambda: rig.info.blockers, "blockers")
    assert f"pid {pid}," in blockers[0]
    assert "fake_sglang" in blockers[0]
    assert "SIGKILL in" in (rig.info.reason or "")
    await rig.until_state(ServerState.STOPPED)
    assert rig.info.blockers == ()
    assert rig.info.exit_code == -signal.SIGKILL


async def test_term_during_load_stops_within_the_budget(rig: Rig) -> None:
    rig.script(load_s=9.0, ignore_term=True)
    rig.settings(stop_timeout_s=1.0)
    await rig.start()
    await rig.until(lambda: rig.supervisor.current.steps.current == "loading target", "loading")
    await rig.stop()
    await rig.until_state(ServerState.STOPPED, timeout=10.0)
    assert "READY" not in rig.states()


async def test_draining_lets_requests_finish(rig: Rig) -> None:
    rig.script(running=2)
    rig.settings(drain_s=20.0)
    await rig.up()
    await rig.stop()
    await rig.until_state(ServerState.DRAINING)
    await rig.until(lambda: "draining" in (rig.info.reason or ""), "time left")
    await rig.fake(running=0)
    await rig.until_state(ServerState.STOPPED)
    assert rig.info.exit_code == 0


async def test_second_stop_cuts_a_drain_short(rig: Rig) -> None:
    rig.script(running=2)
    rig.settings(drain_s=600.0, stop_timeout_s=0.5)
    await rig.up()
    await rig.stop()
    await rig.until_state(ServerState.DRAINING)
    await rig.stop(0.0)
    await rig.until_state(ServerState.STOPPED, timeout=10.0)


async def test_reused_pid_is_never_signalled(daemon_id: str) -> None:
    """A pid file that outlived its process, or the boot, names somebody else's process."""
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    try:
        real = process.identify(stranger.pid)
        assert real is not None
        reused = Identity(real.pid, real.start_ticks - 100, real.boot_id)
        rebooted = Identity(real.pid, real.start_ticks, "00000000-0000-0000-0000-000000000000")
        for identity in (reused, rebooted):
            assert not process.send_signal(identity, signal.SIGKILL)
            assert process.adopt(identity, "marker") is None
        assert process.adopt(real, "marker") is None, "same process, but it does not carry our marker"
        assert stranger.poll() is None
        assert process.send_signal(real, signal.SIGKILL)
        assert stranger.wait() == -signal.SIGKILL
    finally:
        stranger.kill()
        stranger.wait()


async def test_run_file_that_names_a_foreign_process_leaves_it_alone(rig: Rig) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    try:
        await rig.up()
        await rig.stop()
        await rig.until_state(ServerState.STOPPED)
        await rig.close()
        path = rig.folder / "runs" / "1" / "run.json"
        record = json.loads(path.read_text())
        record.update(pid=stranger.pid, outcome=None)
        path.write_text(json.dumps(record))
        later = Rig(rig.folder, rig.daemon_id)
        await asyncio.sleep(0.2)
        assert later.info.state is ServerState.STOPPED
        assert stranger.poll() is None
        await later.close()
        assert stranger.poll() is None
        assert json.loads(path.read_text())["outcome"] == "ended while no daemon watched"
    finally:
        stranger.kill()
        stranger.wait()


async def test_zombie_counts_as_exited_not_as_reused() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    identity = process.identify(child.pid)
    assert identity is not None
    deadline = time.monotonic() + 10
    while not process.read_stat(child.pid).is_zombie:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    assert process.is_same(identity)
    assert not process.is_running(identity)
    child.wait()
    assert not process.is_same(identity)


@pytest.mark.parametrize("run", range(20))
async def test_last_line_before_exit_is_kept(rig: Rig, run: int) -> None:
    rig.script(crash_at="start", load_s=0.0, last_words=f"RuntimeError: last words of run {run}")
    await rig.start()
    await rig.until_state(ServerState.FAILED)
    assert rig.info.last_lines[-1] == f"RuntimeError: last words of run {run}"
    assert "last words" in (rig.info.reason or "")
