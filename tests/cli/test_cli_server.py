"""up, stop, restart, down against the contract."""

import json
from dataclasses import replace

import pytest

from client.contract_daemon import ContractDaemon, stopped_snapshot
from specctl.core.api import StartRequest, StopRequest
from specctl.core.snapshot import ServerInfo
from specctl.core.states import ServerState


def start_well(daemon: ContractDaemon, *states: ServerState, **server) -> None:
    """A daemon without a server, that goes through `states` when it is told to start one."""
    daemon.set(server=ServerInfo())

    def begin(_request: StartRequest):
        accepted = daemon.accept()
        daemon.set(server=replace(ServerInfo(), profile="demo-cpu", run=4))
        for state in states:
            daemon.set_state(state, **server)
        return accepted

    daemon.on["POST /v1/server/start"] = begin


def test_up_starts_waits_and_prints_where_it_is(daemon: ContractDaemon, specctl) -> None:
    start_well(daemon, ServerState.STARTING, ServerState.READY, url="http://127.0.0.1:1", started_at=1.0)
    done = specctl("up", "demo-cpu", "--detach", "--set", "server.port=0", "--set", "a.b=c=d")
    assert (done.code, done.out) == (0, "READY  demo-cpu  http://127.0.0.1:1  run 4\n")
    request = next(r for route, r in daemon.requests if route == "POST /v1/server/start")
    assert request == StartRequest(profile="demo-cpu", overrides={"server.port": "0", "a.b": "c=d"}, actor="ana")


def test_up_json_is_the_server(daemon: ContractDaemon, specctl) -> None:
    start_well(daemon, ServerState.READY, started_at=1.0)
    assert json.loads(specctl("up", "demo-cpu", "--json").out)["state"] == "READY"


def test_up_of_the_running_profile_is_a_success(daemon: ContractDaemon, specctl) -> None:
    done = specctl("up", "demo-cpu", "--detach")
    assert (done.code, done.err) == (0, "profile demo-cpu already runs\n")
    assert not [route for route, _ in daemon.requests if route.startswith("POST")]


def test_up_of_another_profile_is_refused(daemon: ContractDaemon, specctl) -> None:
    done = specctl("up", "eagle3-tree", "--detach")
    assert done.code == 4
    assert "a server of profile demo-cpu is READY" in done.err
    assert "specctl stop" in done.err


def test_up_with_other_overrides_is_refused_and_with_the_same_not(daemon: ContractDaemon, specctl, home) -> None:
    words = ("up", "demo-cpu", "--detach", "--set", "server.port=1")
    assert specctl(*words).code == 4
    (home / "state" / "runs" / "3").mkdir(parents=True)
    (home / "state" / "runs" / "3" / "run.json").write_text('{"overrides": {"server.port": "1"}}')
    assert specctl(*words).code == 0


@pytest.mark.parametrize(
    ("state", "server", "code"),
    [
        (ServerState.FAILED, {"started_at": 1.0, "reason": "exit 1"}, 6),
        (ServerState.FAILED, {"started_at": None, "reason": "preflight: port 1 is taken"}, 4),
        (ServerState.DEGRADED, {"started_at": 1.0, "reason": "patch refused"}, 6),
    ],
)
def test_up_that_fails_has_its_code(daemon: ContractDaemon, specctl, state, server, code) -> None:
    start_well(daemon, ServerState.PREFLIGHT, state, **server)
    done = specctl("up", "demo-cpu", "--detach")
    assert (done.code, done.out) == (code, "")
    assert server["reason"] in done.err.splitlines()[-1]


def test_up_that_takes_too_long_is_a_timeout_and_none_does_not_wait(daemon: ContractDaemon, specctl) -> None:
    start_well(daemon, ServerState.STARTING, started_at=1.0)
    done = specctl("up", "demo-cpu", "--detach", "--timeout", "0.1")
    assert done.code == 5
    assert "the server is STARTING, not READY, after 0.1 s" in done.err
    assert specctl("up", "demo-cpu", "--detach", "--wait", "none").out.startswith("STARTING")
    assert specctl("up", "demo-cpu", "--detach", "--wait", "starting").code == 0


def test_ctrl_c_while_waiting_says_that_the_server_goes_on(daemon: ContractDaemon, spawn) -> None:
    import signal

    start_well(daemon, ServerState.STARTING, started_at=1.0)
    process = spawn("up", "demo-cpu", "--detach")
    with daemon.changed:
        assert daemon.changed.wait_for(lambda: daemon.streams, 60)
    assert process.stderr.readline() == "STARTING\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "the server goes on starting: `specctl status` shows it, `specctl stop` ends it\n"


def test_stop_waits_and_tells_who_blocks(daemon: ContractDaemon, specctl) -> None:
    def begin(request: StopRequest):
        accepted = daemon.accept()
        daemon.set_state(ServerState.STOPPING, blockers=("pid 7, 3 s old: x",))
        daemon.set_state(ServerState.STOPPING, blockers=("pid 7, 4 s old: x", "pid 8, 1 s old: y"))
        daemon.set_state(ServerState.STOPPED, blockers=())
        return accepted

    daemon.on["POST /v1/server/stop"] = begin
    assert specctl("stop", "--drain", "5")[:2] == (0, "STOPPED\n")
    assert ("POST /v1/server/stop", StopRequest(drain_s=5.0, actor="ana")) in daemon.requests
    again = specctl("stop")
    assert again == (0, "STOPPED\n", "no server runs: it is STOPPED\n")


def test_restart_waits_for_the_new_run(daemon: ContractDaemon, specctl) -> None:
    def begin(_request: StopRequest):
        accepted = daemon.accept()
        daemon.set_state(ServerState.STOPPED)
        daemon.set_state(ServerState.STARTING, run=4)
        daemon.set_state(ServerState.READY)
        return accepted

    daemon.on["POST /v1/server/restart"] = begin
    assert json.loads(specctl("restart", "--json").out)["run"] == 4


def test_down_waits_until_the_daemon_is_gone_and_is_content_with_nothing(daemon: ContractDaemon, specctl) -> None:
    def end(_request: StopRequest):
        import threading

        threading.Thread(target=daemon.close).start()
        return daemon.accept()

    daemon.on["POST /v1/daemon/shutdown"] = end
    assert specctl("down").out == "the server and the daemon have ended\n"
    assert specctl("down") == (0, "", "nothing runs\n")
    assert json.loads(specctl("down", "--json").out) == {"stopped": False}


def test_down_that_does_not_end_is_a_timeout(daemon: ContractDaemon, specctl) -> None:
    assert specctl("down", "--timeout", "0.2").code == 5


def test_version_tells_of_another_daemon(daemon: ContractDaemon, specctl) -> None:
    from specctl import __version__

    assert specctl("version")[:2] == (0, f"specctl {__version__}\n")
    daemon.set(daemon=replace(stopped_snapshot().daemon, version="9.9"))
    assert json.loads(specctl("version", "--json").out) == {"version": __version__, "daemon": "9.9"}
    assert "the running daemon has version 9.9" in specctl("version").err
