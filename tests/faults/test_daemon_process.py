"""The daemon as a process: killed, restarted, doubled, signalled."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.daemon_process import DaemonProcess
from faults.rig import marked
from specctl.config.paths import paths
from specctl.daemon.app import daemon_id
from specctl.daemon.process import read_stat


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Callable[..., DaemonProcess]]:
    """Makes daemons in one home; afterwards all are ended and nothing of theirs may live."""
    home = tmp_path / "h"
    made: list[DaemonProcess] = []

    def make(**options: Any) -> DaemonProcess:
        one = DaemonProcess(home, **options)
        made.append(one)
        one.start()
        return one

    yield make
    for one in reversed(made):
        if one.process is not None and one.process.poll() is None:
            one.down()
    name = daemon_id(paths({"SPECCTL_HOME": str(home)}))
    left = marked(name)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


def flip(daemon: DaemonProcess, mode: str) -> dict[str, Any]:
    status, accepted = daemon.ask("POST", "/v1/mode", {"mode": mode})
    assert status == 202, accepted

    def end() -> Any:
        events = daemon.ask("GET", f"/v1/events?after={accepted['after_event']}")[1]["events"]
        found = [e["flip"] for e in events if e["flip"] and e["flip"]["epoch"] == accepted["epoch"]]
        return found[-1] if found and found[-1]["state"] in ("confirmed", "refused", "unconfirmed") else None

    return daemon.until(end, "end of flip")


def test_killed_daemon_is_followed_by_one_that_adopts_the_server(daemon) -> None:
    first = daemon(script={"running": 1, "grandchild": "session"})
    server = first.up()
    epoch = flip(first, "chain")["epoch"]
    lines = first.ask("GET", "/v1/logs?tail=3")[1]["lines"]
    last_event = first.ask("GET", "/v1/events?limit=1")[1]["last_id"]
    first.kill()
    assert first.socket.exists(), "a killed daemon leaves its socket"

    second = daemon()
    adopted = second.until_state("READY")
    assert (adopted["pid"], adopted["run"]) == (server["pid"], server["run"])
    assert adopted["ready_at"] == pytest.approx(server["ready_at"])
    assert second.ask("GET", "/v1/logs?tail=3")[1]["lines"] == lines
    spec = second.ask("GET", "/v1/snapshot")[1]["speculation"]
    assert (spec["mode"], spec["epoch"], spec["actor"]) == ("chain", epoch, flip_actor(second, epoch))
    confirmed = flip(second, "off")
    assert confirmed["state"] == "confirmed"
    assert confirmed["epoch"] > epoch
    ids = [e["id"] for e in second.ask("GET", "/v1/events?after=0&limit=5000")[1]["events"]]
    assert ids == list(range(1, len(ids) + 1))
    assert ids[-1] > last_event
    assert second.down() == 0


def flip_actor(daemon: DaemonProcess, epoch: int) -> str:
    events = daemon.ask("GET", "/v1/events?after=0&limit=5000")[1]["events"]
    return next(e["flip"]["actor"] for e in events if e["flip"] and e["flip"]["epoch"] == epoch)


def test_server_that_died_while_no_daemon_watched_is_not_adopted(daemon) -> None:
    first = daemon()
    server = first.up()
    first.kill()
    os.kill(server["pid"], signal.SIGKILL)
    second = daemon()
    assert second.server["state"] == "STOPPED"
    assert second.up()["run"] == 2


def test_terminated_daemon_leaves_the_server_running(daemon) -> None:
    first = daemon()
    server = first.up()
    first.process.send_signal(signal.SIGTERM)
    assert first.process.wait(20) == 143
    assert not first.socket.exists()
    os.kill(server["pid"], 0)
    second = daemon()
    assert second.until_state("READY")["pid"] == server["pid"]


def test_live_daemon_is_never_displaced(daemon) -> None:
    first = daemon()
    done = subprocess.run(
        [sys.executable, "-m", "specctl.daemon"], env=first.env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 4
    assert f"pid {first.process.pid} " in done.stderr
    assert done.stderr.count("\n") == 1
    assert first.ask("GET", "/v1/snapshot")[1]["daemon"]["pid"] == first.process.pid


def test_stale_socket_and_lock_do_not_block_a_start(daemon, tmp_path: Path) -> None:
    runtime = tmp_path / "h" / "run"
    runtime.mkdir(parents=True, mode=0o700)
    (tmp_path / "h" / "run").chmod(0o700)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(runtime / "specctld.sock"))
    (runtime / "specctld.lock").write_text("1\n")
    one = daemon()
    assert one.server["state"] == "STOPPED"


def test_socket_and_folder_are_only_ours(daemon) -> None:
    one = daemon()
    assert one.socket.stat().st_mode & 0o777 == 0o600
    assert one.socket.parent.stat().st_mode & 0o777 == 0o700


def test_shutdown_stops_the_server_then_ends_the_daemon(daemon) -> None:
    one = daemon(script={"grandchild": "session"})
    pid = one.up()["pid"]
    assert one.down() == 0
    assert not one.socket.exists()
    assert not Path(f"/proc/{pid}").exists()


def cli(one: DaemonProcess, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "specctl.cli.main", *words]
    return subprocess.run(
        command, env=one.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60
    )


def test_commands_know_the_server_that_a_dead_daemon_left_and_down_ends_it(daemon) -> None:
    one = daemon(script={"running": 1})
    pid = one.up()["pid"]
    one.kill()
    for words in (["status"], ["mode", "off"], ["stop"], []):
        done = cli(one, *words)
        assert done.returncode == 3
        assert f"its server still runs (run 1, pid {pid}, profile fake)" in done.stderr
        assert done.stderr.count("\n") == 1
    done = cli(one, "down", "--drain", "0")
    assert (done.returncode, done.stdout) == (0, "the server and the daemon have ended\n")
    left = read_stat(pid)
    assert left is None or left.is_zombie, "the dead daemon's parent may not have waited for it yet"
    assert not one.socket.exists()
    assert cli(one, "down").stderr == "nothing runs\n"
    assert cli(one, "status").stderr.startswith(f"specctl: no daemon runs at {one.socket}. ")


def test_adopted_server_is_drained_even_when_told_to_end_at_once(daemon) -> None:
    first = daemon(settings={"drain_s": 30.0})
    first.up()
    first.kill()
    second = daemon()
    second.ask("POST", "/v1/server/stop", {})
    second.until_state("STOPPED")
    states = [e["data"]["state"] for e in second.ask("GET", "/v1/events?after=0")[1]["events"] if e["kind"] == "state"]
    assert "DRAINING" in states


def test_read_only_daemon_refuses_every_command(daemon) -> None:
    one = daemon(read_only=True)
    bodies = {
        "/v1/server/start": {"profile": "fake"},
        "/v1/server/stop": {},
        "/v1/server/restart": {},
        "/v1/server/drain": {},
        "/v1/mode": {"mode": "off"},
        "/v1/notes": {"text": "x"},
        "/v1/daemon/shutdown": {},
    }
    for path, body in bodies.items():
        status, reply = one.ask("POST", path, body)
        assert (status, reply["error"]["kind"], reply["error"]["exit_code"]) == (409, "refused", 4), path
    assert one.ask("GET", "/v1/snapshot")[1]["daemon"]["read_only"] is True
    one.process.send_signal(signal.SIGTERM)
    one.process.wait(20)


def test_secrets_of_the_server_never_leave_the_daemon(daemon) -> None:
    one = daemon(script={"running": 1})
    one.up()
    flip(one, "off")
    for path in ("/v1/snapshot", "/v1/events?after=0", "/v1/logs", "/v1/history", "/v1/openapi.json"):
        assert "secret-" not in str(one.ask("GET", path)[1])
    assert "secret-" not in one.log.read_text()
    assert all("secret-" not in p.read_text(errors="replace") for p in one.home.rglob("*") if p.is_file())


def test_signal_during_a_stop_waits_for_its_end(daemon) -> None:
    one = daemon(script={"ignore_term": True}, settings={"stop_timeout_s": 2.0})
    pid = one.up()["pid"]
    one.ask("POST", "/v1/server/stop", {"drain_s": 0})
    one.until_state("STOPPING")
    one.process.send_signal(signal.SIGTERM)
    assert one.process.wait(20) == 143
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("gone", ["socket", "lock"])
def test_a_daemon_that_cannot_be_reached_any_more_ends_and_the_server_is_adopted(daemon, gone: str) -> None:
    first = daemon(script={"running": 1})
    server = first.up()
    place = first.socket if gone == "socket" else first.socket.with_suffix(".lock")
    place.unlink()
    assert first.process is not None
    assert first.process.wait(timeout=20) == 0
    second = daemon()
    adopted = second.until_state("READY")
    assert (adopted["pid"], adopted["run"]) == (server["pid"], server["run"])
