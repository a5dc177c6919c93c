"""The supervisor's states when things go wrong: every failure ends in a state that says what to do."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys

import pytest

from faults.rig import Rig, marked
from specctl.core.errors import Refused
from specctl.core.events import EventKind
from specctl.core.states import PatchStatus, ServerState, StepStatus
from specctl.daemon.launching import Check
from specctl.daemon.restart import RestartMode, RestartPolicy


async def test_steps_are_read_from_the_log_up_to_ready(rig: Rig) -> None:
    await rig.up()
    assert rig.states() == ["PREFLIGHT", "STARTING", "READY"]
    assert [step.status for step in rig.info.steps] == [StepStatus.DONE] * len(rig.info.steps)
    record = rig.runs.read(1)
    assert record is not None
    assert {"launching", "loading target", "loading draft", "KV cache"} <= set(record.step_seconds)
    assert rig.info.engine_version == "0.5.23"


async def test_failed_preflight_starts_nothing(rig: Rig, daemon_id: str) -> None:
    rig.launcher.checks = [
        Check(name="port", ok=False, message="port 30000 is taken by pid 7", remedy="Free it"),
        Check(name="disk", ok=True),
    ]
    await rig.start()
    await rig.until_state(ServerState.FAILED)
    assert rig.info.reason == "preflight: port: port 30000 is taken by pid 7"
    assert rig.info.remedy == "Free it"
    assert [step.status for step in rig.info.steps] == [StepStatus.FAILED, StepStatus.DONE]
    assert rig.info.pid is None
    assert marked(daemon_id) == []


async def test_program_that_cannot_be_started_is_failed_with_a_remedy(rig: Rig) -> None:
    rig.launcher.argv = ("/nonexistent/python", "-m", "sglang")
    await rig.start()
    await rig.until_state(ServerState.FAILED)
    assert "'/nonexistent/python'" in (rig.info.reason or "")
    assert rig.info.remedy


async def test_exit_during_load_is_failed_at_once(rig: Rig) -> None:
    """The wait for readiness must not outlive the process it waits for."""
    rig.script(crash_at="kv", exit_code=17)
    rig.settings(ready_timeout_s=900.0, restart=RestartPolicy(mode=RestartMode.ALWAYS))
    await rig.start()
    await rig.until_state(ServerState.FAILED)
    assert rig.info.exit_code == 17
    assert "exited with code 17 while KV cache" in (rig.info.reason or "")
    assert "ValueError: the model does not fit" in (rig.info.reason or "")
    assert "BACKOFF" not in rig.states()
    assert [s.status for s in rig.info.steps if s.name == "KV cache"] == [StepStatus.FAILED]


async def test_daemon_stays_and_shows_how_the_server_died(rig: Rig) -> None:
    rig.script(exit_after_s=1.0, exit_code=9, flood_lines=50)
    await rig.up()
    await rig.until_state(ServerState.FAILED)
    assert rig.info.exit_code == 9
    assert len(rig.info.last_lines) == 20
    assert rig.info.last_lines[-1] == "ValueError: the model does not fit"
    assert "flood 49" in rig.info.last_lines
    assert rig.runs.read(1).outcome.startswith("FAILED")


async def test_failed_server_can_be_started_again(rig: Rig) -> None:
    rig.script(crash_at="target")
    await rig.start()
    await rig.until_state(ServerState.FAILED)
    rig.script(crash_at="")
    await rig.up()
    assert rig.info.run == 2
    assert rig.info.exit_code is None
    assert rig.info.last_lines == ()


async def test_slow_load_becomes_ready(rig: Rig) -> None:
    rig.script(load_s=3.0)
    await rig.up()


async def test_load_that_takes_too_long_is_ended_and_says_where_it_was(rig: Rig, daemon_id: str) -> None:
    rig.script(load_s=600.0)
    rig.settings(ready_timeout_s=1.0)
    await rig.start()
    await rig.until_state(ServerState.FAILED)
    assert "not ready after 1 s, in step 'launching'" in (rig.info.reason or "")
    assert marked(daemon_id) == []


async def test_crash_loop_counts_down_and_gives_up(rig: Rig) -> None:
    policy = RestartPolicy(mode=RestartMode.ON_FAILURE, max_restarts=2, base_s=0.2, jitter=0.0)
    rig.settings(restart=policy)
    rig.script(exit_after_s=1.0)
    await rig.up()
    await rig.until_state(ServerState.BACKOFF)
    assert (rig.info.reason or "").startswith("restart 1/2 in ")
    assert rig.info.retry_at is not None
    await rig.until_state(ServerState.FAILED)
    assert (rig.info.reason or "").startswith("crash loop: 2 restarts in a row")
    assert rig.states().count("BACKOFF") == 2
    assert rig.info.restarts == 2
    assert rig.info.run == 3


async def test_restart_listens_at_the_same_address(rig: Rig) -> None:
    await rig.up()
    url, pid = rig.info.url, rig.info.pid
    await rig.restart()
    await rig.until(lambda: rig.info.run == 2 and rig.info.state is ServerState.READY, "second run")
    assert rig.info.url == url
    assert rig.info.pid != pid


async def test_stop_during_back_off_never_starts_again(rig: Rig) -> None:
    rig.settings(restart=RestartPolicy(mode=RestartMode.ALWAYS, base_s=1.0, jitter=0.0))
    rig.script(exit_after_s=1.0)
    await rig.up()
    await rig.until_state(ServerState.BACKOFF)
    await rig.stop()
    await rig.until_state(ServerState.STOPPED)
    before = rig.events.last_id
    await asyncio.sleep(1.5)
    assert rig.info.state is ServerState.STOPPED
    assert rig.events.last_id == before
    assert rig.runs.numbers() == [1]


async def test_stop_after_restart_wins(rig: Rig) -> None:
    rig.script(ignore_term=True)
    rig.settings(stop_timeout_s=1.0)
    await rig.up()
    await rig.restart()
    await rig.stop()
    await rig.until_state(ServerState.STOPPED)
    await asyncio.sleep(0.5)
    assert rig.info.state is ServerState.STOPPED
    assert rig.runs.numbers() == [1]


async def test_stop_during_preflight(rig: Rig, daemon_id: str) -> None:
    rig.launcher.check_s = 0.5
    await rig.start()
    assert rig.info.state is ServerState.PREFLIGHT
    await rig.stop()
    await rig.until_state(ServerState.STOPPED)
    await asyncio.sleep(0.7)
    assert rig.info.state is ServerState.STOPPED
    assert marked(daemon_id) == []


async def test_second_start_is_refused(rig: Rig) -> None:
    await rig.up()
    with pytest.raises(Refused, match="the server is READY, profile fake"):
        await rig.start()
    assert rig.runs.numbers() == [1]


async def test_stop_of_a_stopped_server_is_no_error(rig: Rig) -> None:
    accepted = await rig.stop()
    assert "STOPPED" in accepted.message


async def test_wedged_server_is_degraded_and_recovers(rig: Rig) -> None:
    """Healthy pages, running requests, and nothing moves: that is not READY."""
    rig.settings(wedged_after_s=2.0)
    rig.script(running=3)
    await rig.up()
    await rig.fake(wedged=True)
    await rig.until(lambda: (rig.info.reason or "").startswith("wedged"), "wedged")
    assert rig.info.state is ServerState.DEGRADED
    await rig.fake(wedged=False)
    await rig.until_state(ServerState.READY)


async def test_schedulers_that_hang_while_nothing_runs_are_noticed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent to them then is counted nowhere: running stays 0, and every page looks like an idle server's."""
    monkeypatch.setattr("specctl.daemon.watchers.INFO_EVERY_S", 0.2)
    monkeypatch.setattr("specctl.daemon.health.SILENT_AT_LEAST_S", 2.0)
    rig.settings(wedged_after_s=2.0)
    await rig.up()
    await rig.fake(wedged=True)
    await rig.until(lambda: (rig.info.reason or "").startswith("wedged: the schedulers have not answered"), "wedged")
    assert rig.info.state is ServerState.DEGRADED
    assert "specctl restart" in (rig.info.remedy or "")
    await rig.fake(wedged=False)
    await rig.until_state(ServerState.READY, timeout=60.0)


async def test_death_of_one_process_is_named_at_once_and_in_the_end(rig: Rig) -> None:
    """SGLang hangs on for a while after a child's death, and its parent then kills itself with SIGKILL."""
    await rig.up()
    await rig.fake(says="Subprocess detokenizer (pid=77) crashed with exit code -9. Triggering SIGQUIT for cleanup...")
    await rig.until_state(ServerState.DEGRADED)
    assert rig.info.reason == "broken: detokenizer (pid 77) was killed by signal 9 (out of memory?)"
    os.kill(rig.pid, signal.SIGKILL)
    await rig.until_state(ServerState.FAILED)
    assert rig.info.reason == "detokenizer (pid 77) was killed by signal 9 (out of memory?)"


async def test_run_folder_that_was_removed_does_not_hide_the_end(rig: Rig) -> None:
    await rig.up()
    shutil.rmtree(rig.supervisor.current.folder)
    os.kill(rig.pid, signal.SIGKILL)
    await rig.until_state(ServerState.FAILED)
    assert (rig.info.reason or "").startswith("killed by signal 9")
    assert any(e.kind is EventKind.ALERT and "run.json of run 1" in e.message for e in rig.events.page(0, 999))


async def test_state_folder_that_cannot_be_written_refuses_the_start(rig: Rig) -> None:
    rig.runs.folder.write_text("a file where the folder should be")
    with pytest.raises(Refused, match="runs cannot be written"):
        await rig.start()
    assert rig.info.state is ServerState.STOPPED


async def test_idle_server_is_not_wedged(rig: Rig) -> None:
    rig.settings(wedged_after_s=1.0)
    await rig.up()
    await asyncio.sleep(3.0)
    assert rig.info.state is ServerState.READY


async def test_metrics_that_stop_coming_are_shown_as_stale(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specctl.daemon.health.STALE_AFTER_S", 1.5)
    await rig.up()
    await rig.fake(metrics_hang_s=20.0)
    await rig.until(lambda: (rig.info.reason or "").startswith("metrics stale"), "stale")
    assert rig.info.state is ServerState.DEGRADED


async def test_slow_health_page_never_makes_the_state_flap(rig: Rig) -> None:
    rig.script(health_s=1.5)
    await rig.up()
    await asyncio.sleep(3.0)
    assert rig.states() == ["PREFLIGHT", "STARTING", "READY"]


@pytest.mark.parametrize(("patch", "status"), [("refused", PatchStatus.REFUSED), ("absent", PatchStatus.ABSENT)])
async def test_server_without_patch_is_degraded_and_refuses_flips(rig: Rig, patch: str, status: PatchStatus) -> None:
    rig.script(patch=patch)
    await rig.start()
    await rig.until_state(ServerState.DEGRADED)
    spec = rig.snapshots.make().speculation
    assert spec.patch is status
    assert all(status.value in (mode.unavailable or "") for mode in spec.modes)
    if patch == "refused":
        assert "signature of create_worker differs" in (rig.info.reason or "")
    with pytest.raises(Refused, match=f"the engine patch is {status.value}"):
        await rig.mode("chain")


async def test_exit_with_zero_by_itself_is_not_a_failure(rig: Rig) -> None:
    rig.script(exit_after_s=1.0, exit_code=0)
    rig.settings(restart=RestartPolicy(mode=RestartMode.ON_FAILURE))
    await rig.up()
    await rig.until_state(ServerState.STOPPED)
    assert "exited with code 0" in (rig.info.reason or "")


async def test_unrelated_program_that_just_exits(rig: Rig) -> None:
    rig.launcher.argv = (sys.executable, "-c", "print('no newline at the end', end='')")
    await rig.start()
    await rig.until_state(ServerState.FAILED)
    assert rig.info.last_lines == ("no newline at the end",)


async def test_preflight_that_fails_in_an_automatic_restart_backs_off(rig: Rig) -> None:
    """Memory or a port that the dead server has not given back yet is no reason to give up at once."""
    rig.settings(restart=RestartPolicy(mode=RestartMode.ON_FAILURE, max_restarts=5, base_s=0.5, jitter=0.0))
    rig.script(exit_after_s=1.0)
    await rig.up()
    rig.launcher.checks = [Check(name="memory", ok=False, message="GPU 0 is full", remedy="Wait")]
    await rig.until(lambda: "preflight: memory: GPU 0 is full" in (rig.info.reason or ""), "second back-off")
    assert rig.info.state is ServerState.BACKOFF
    rig.launcher.checks = []
    rig.script(exit_after_s=0.0)
    await rig.until_state(ServerState.READY)


async def test_restart_by_hand_of_a_server_that_cannot_load_is_failed_at_once(rig: Rig) -> None:
    rig.settings(restart=RestartPolicy(mode=RestartMode.ALWAYS, base_s=0.1))
    await rig.up()
    rig.script(crash_at="target")
    await rig.restart()
    await rig.until_state(ServerState.FAILED)
    assert "BACKOFF" not in rig.states()
