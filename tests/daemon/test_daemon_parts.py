"""The pure parts: start steps from real log lines, restart budget, health, sockets, events."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specctl.config.paths import paths
from specctl.core.errors import Refused
from specctl.core.events import EventKind
from specctl.core.modes import DEFAULT_MODES
from specctl.core.states import PatchStatus, StepStatus
from specctl.daemon.api.server import _with_peer
from specctl.daemon.events import EventLog
from specctl.daemon.health import Health
from specctl.daemon.restart import RestartBudget, RestartMode, RestartPolicy
from specctl.daemon.socket import bind, peer_of
from specctl.daemon.steps import StartSteps, explain_death, explain_exit

LOG = (Path(__file__).parent / "fixtures" / "start-0.5.23.log").read_text().split("\n")


def feed(lines: list[str]) -> tuple[StartSteps, list[str]]:
    steps, seen = StartSteps.of(0.0, DEFAULT_MODES, {}), ["launching"]
    for number, line in enumerate(lines, 1):
        steps.feed(number, line, float(number))
        if steps.current != seen[-1]:
            seen.append(steps.current)
    return steps, seen


def test_steps_of_a_real_start() -> None:
    steps, seen = feed(LOG)
    assert seen == ["launching", "loading target", "loading draft", "KV cache", "graphs"]
    steps.finish(999.0)
    assert {step.status for step in steps.steps(999.0)} == {StepStatus.DONE}


def test_only_rank_zero_is_followed() -> None:
    lines = []
    for text in ("Load weight begin. avail mem=1 GB", "KV Cache is allocated. dtype: x"):
        lines += [f"[2026-11-29 17:25:02 DP0 TP{rank}] {text}" for rank in range(4)]
        lines += [f"[2026-11-29 17:25:02 DP1 TP0] {text}"]
    assert feed(lines)[1] == ["launching", "loading target", "KV cache"]


def test_progress_bars_give_a_fraction() -> None:
    steps, _ = feed(["[2026-11-29 17:25:02] Load weight begin. avail mem=1 GB"])
    steps.feed(
        2, "Multi-thread loading shards:   0% Completed | 0/4\rMulti-thread loading shards:  25% Completed | 1/4", 5
    )
    current = next(s for s in steps.steps(5) if s.status is StepStatus.RUNNING)
    assert (current.name, current.fraction) == ("loading target", 0.25)
    steps.feed(3, "[2026-11-29 17:25:02] Capture draft decode CUDA graph begin. backend=full, x", 6)
    steps.feed(4, "Capturing batches (bs=8 avail_mem=20.3 GB):  50%|#####     | 4/8 [00:01<00:01]", 7)
    current = next(s for s in steps.steps(7) if s.status is StepStatus.RUNNING)
    assert (current.name, current.fraction, current.detail) == ("graphs", 0.5, "draft decode")


def test_unfinished_line_is_counted_once() -> None:
    steps = StartSteps.of(0.0, DEFAULT_MODES, {})
    for line in ("[2026-11-29 17:25:02] Load weight begin. av", "[2026-11-29 17:25:02] Load weight begin. avail mem"):
        steps.feed(1, line, 1.0)
    assert steps.current == "loading target"


@settings(deadline=None)
@given(st.lists(st.sampled_from(LOG), max_size=60))
def test_steps_never_go_back_whatever_the_log_says(lines: list[str]) -> None:
    steps, last = StartSteps.of(0.0, DEFAULT_MODES, {}), 0
    for number, line in enumerate(lines, 1):
        steps.feed(number, line, float(number))
        assert steps.names.index(steps.current) >= last
        last = steps.names.index(steps.current)


@settings(deadline=None)
@given(st.text())
def test_any_text_is_a_log_line(text: str) -> None:
    StartSteps.of(0.0, DEFAULT_MODES, {}).feed(1, text, 1.0)
    explain_exit([text])


def test_reason_of_an_exit_is_the_last_error() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "x.py", line 1, in <module>',
        "RuntimeError: first",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB",
        "[2026-11-29 17:25:30] SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
    ]
    assert explain_exit(lines) == "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB"
    assert explain_exit(["all is well"]) is None


def test_reason_names_the_process_that_died_first() -> None:
    """SGLang's parent kills itself with SIGKILL when a child dies: its own exit code says nothing."""
    stamp = "[2026-11-29 18:49:05] "
    lines = [
        stamp + "Decode batch, #running-req: 2",
        stamp + "Subprocess scheduler_0 (pid=21204) crashed with exit code -9. Triggering SIGQUIT for cleanup...",
        stamp + "kill_process_tree called: parent_pid=21071, include_parent=True, pid=21071",
    ]
    assert explain_death(lines) == "scheduler_0 (pid 21204) was killed by signal 9 (out of memory?)"
    assert explain_death([line.replace("-9", "3") for line in lines]) == "scheduler_0 (pid 21204) exited with code 3"
    assert explain_death(lines[:1]) is None


def test_budget_doubles_caps_and_refills() -> None:
    policy = RestartPolicy(mode=RestartMode.ALWAYS, max_restarts=4, base_s=10, cap_s=35, jitter=0.0, stable_s=60)
    budget = RestartBudget(policy)
    assert [budget.take() for _ in range(5)] == [10, 20, 35, 35, None]
    budget.refill(59)
    assert budget.take() is None
    budget.refill(60)
    assert budget.take() == 10
    assert budget.total == 5


@settings(deadline=None)
@given(st.floats(0, 1), st.integers(0, 30))
def test_jitter_only_adds_and_never_passes_the_cap(rand: float, times: int) -> None:
    policy = RestartPolicy(max_restarts=100, base_s=1, cap_s=50, jitter=0.3)
    budget = RestartBudget(policy, rand=lambda: rand)
    for number in range(times + 1):
        delay = budget.take()
        assert delay is not None
        assert min(50, 2.0**number) <= delay <= 50


def test_what_each_policy_wants() -> None:
    wants = {mode: [RestartPolicy(mode=mode).wants(failed=f) for f in (True, False)] for mode in RestartMode}
    assert wants == {"never": [False, False], "on-failure": [True, False], "always": [True, True]}


def test_worst_problem_is_named_first() -> None:
    everything = {
        "patch": PatchStatus.REFUSED,
        "patch_reason": "why",
        "ready_failures": 2,
        "metrics_age": 9.0,
        "frozen_for": 30.0,
        "silent_for": 30.0,
    }
    order = []
    for name, fine in [
        ("frozen_for", 0.0),
        ("silent_for", 0.0),
        ("ready_failures", 0),
        ("metrics_age", 0.0),
        ("patch", PatchStatus.ACTIVE),
    ]:
        problem = Health(**everything).problem()
        assert problem is not None
        order.append(problem[0].split(":")[0])
        everything[name] = fine
    assert order == ["wedged", "wedged", "unhealthy", "metrics stale", "patch refused"]
    assert Health(**everything).problem() is None


def test_folder_that_is_open_to_others_or_a_link_is_refused(tmp_path: Path) -> None:
    open_folder = tmp_path / "open"
    open_folder.mkdir(mode=0o755)
    open_folder.chmod(0o755)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    for folder in (open_folder, link):
        with pytest.raises(Refused):
            bind(paths({"SPECCTL_HOME": str(tmp_path), "SPECCTL_SOCKET": str(folder / "s.sock")}))


def test_file_in_the_sockets_place_is_not_removed(tmp_path: Path) -> None:
    where = paths({"SPECCTL_HOME": str(tmp_path)})
    where.runtime_dir.mkdir(mode=0o700)
    where.socket.write_text("precious")
    with pytest.raises(Refused, match="not a socket"):
        bind(where)
    assert where.socket.read_text() == "precious"


def test_bound_socket_knows_its_peer_and_is_removed(tmp_path: Path) -> None:
    where = paths({"SPECCTL_HOME": str(tmp_path)})
    bound = bind(where)
    with pytest.raises(Refused, match=f"pid {os.getpid()} holds"):
        bind(where)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(where.socket))
        accepted, _ = bound.listener.accept()
        with accepted:
            assert peer_of(accepted) == (os.getpid(), os.getuid())
    bound.close()
    assert not where.socket.exists()
    bind(where).close()


async def test_event_ids_go_on_after_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    first = EventLog(path)
    for number in range(3):
        first.add(EventKind.NOTE, f"note {number}")
    first.close()
    with path.open("ab") as file:
        file.write(b'{"id": 4, "at": 1.0, "kin')
    second = EventLog(path)
    assert second.last_id == 3
    assert second.add(EventKind.NOTE, "after").id == 4
    second.close()
    third = EventLog(path)
    assert [e.message for e in third.page(0, 99)] == ["note 0", "note 1", "note 2", "after"]
    third.close()


async def test_pages_of_events(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    for number in range(1, 11):
        log.add(EventKind.NOTE, str(number))
    assert [e.id for e in log.page(None, 3)] == [8, 9, 10]
    assert [e.id for e in log.page(4, 3)] == [5, 6, 7]
    assert log.page(10, 3) == []
    assert log.page(None, 0) == []
    changed = log.subscribe()
    log.add(EventKind.NOTE, "x")
    await asyncio.wait_for(changed.wait(), 1)
    log.close()


@pytest.mark.parametrize(("peer", "status"), [((1, os.getuid() + 4242), 403), (None, 403), ((1, os.getuid()), 200)])
async def test_other_users_are_refused_whatever_the_files_allow(peer: tuple[int, int] | None, status: int) -> None:
    async def app(scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    sent = []

    async def send(message) -> None:
        sent.append(message)

    await _with_peer(app, peer)({"type": "http", "headers": []}, None, send)
    assert sent[0]["status"] == status
