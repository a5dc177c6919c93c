import json
from dataclasses import replace

import msgspec
import pytest

from client.contract_daemon import ContractDaemon, ready_snapshot, stopped_snapshot
from specctl.cli.report import status_lines, watch_line
from specctl.core.snapshot import (
    EngineNumbers,
    Flip,
    Gpu,
    ModeNumbers,
    Reading,
    ServerInfo,
    Snapshot,
    SpeculationInfo,
    StartStep,
)
from specctl.core.states import FlipCause, FlipState, PatchStatus, ServerState, StepStatus


def known(value: float, age: float = 0.5, unit: str = "") -> Reading:
    return Reading(value=value, age=age, unit=unit)


FULL = ready_snapshot(
    at=100_000.0,
    server=replace(
        ready_snapshot().server, model="llama-3.1-8b", draft="eagle3", since=4000.0, ready_at=4000.0, restarts=2
    ),
    speculation=replace(
        ready_snapshot().speculation,
        cause=FlipCause.OPERATOR,
        actor="ana",
        epoch=41,
        ranks=8,
        last_flip=Flip(epoch=41, to_mode="tree", state=FlipState.CONFIRMED, latency_ms=38.2),
        by_mode=(
            ModeNumbers(mode="tree", rounds=1_234_567, committed_tokens=9_876_543, acceptance_length=known(2.61)),
            ModeNumbers(mode="off"),
        ),
    ),
    engine=EngineNumbers(
        tokens_per_second=known(2412.4),
        acceptance_length=known(2.6149),
        running=known(8),
        queued=known(0),
        kv_usage=known(0.31, unit="ratio"),
    ),
    gpus=(
        Gpu(
            index=0,
            uuid="u0",
            name="H200",
            utilization=known(94, unit="%"),
            memory_used=known(71.2 * 2**30, unit="bytes"),
            memory_total=known(140 * 2**30, unit="bytes"),
            power=known(612, unit="W"),
            temperature=known(64, unit="C"),
        ),
        Gpu(index=1, uuid="u1", name="H200", lost="GPU has fallen off the bus"),
        Gpu(index=2, uuid="u2", name="H200"),
    ),
)


def test_full_status_says_everything_in_80_columns() -> None:
    lines = status_lines(FULL)
    assert max(map(len, lines)) <= 80
    assert lines[:6] == [
        "server   READY for 1d02h   up 1d02h   run 3   pid 4242   restarts 2",
        "model    llama-3.1-8b + eagle3",
        "profile  demo-cpu   url http://127.0.0.1:30000",
        "mode     tree (2/4/16)   manual   by operator ana   epoch 41",
        "flip     38 ms   ranks 8   flips 0",
        "engine   2,412 tok/s   L 2.61   running 8   queued 0   KV 31 %",
    ]
    assert lines[6:9] == [
        "gpu 0     94 %   71.2/140.0 GiB   612 W   64 C",
        "gpu 1    lost: GPU has fallen off the bus",
        "gpu 2        -   -   -   -",
    ]
    assert lines[9].split() == ["by", "mode", "rounds", "tokens", "L", "tok/s"]
    assert lines[10].split() == ["tree", "1,234,567", "9,876,543", "2.61", "-"]


def test_unknown_is_a_dash_and_never_zero() -> None:
    text = "\n".join(status_lines(replace(stopped_snapshot(), gpu_note=None)))
    assert "0" not in text.replace("manual", "")
    assert "engine   -   L -   running -   queued -   KV -" in text
    assert "mode     -   manual   by -\nflip     -   ranks -" in text


def test_an_old_number_shows_its_age() -> None:
    engine = EngineNumbers(tokens_per_second=known(50.0, age=75), running=known(1, age=4.9))
    line = status_lines(ready_snapshot(engine=engine))[5]
    assert line.startswith("engine   50.0 tok/s (1m15s old)   L -   running 1   ")


def test_failure_blockers_and_steps_are_told() -> None:
    failed = ServerInfo(state=ServerState.FAILED, reason="out of memory", remedy="lower it", blockers=("pid 7 40 GiB",))
    text = "\n".join(status_lines(ready_snapshot(server=failed)))
    assert "reason   out of memory\nremedy   lower it" in text
    assert "waiting  pid 7 40 GiB" in text
    steps = (
        StartStep(name="weights", status=StepStatus.RUNNING, seconds=6.0, fraction=0.5),
        StartStep(name="graphs"),
    )
    starting = ServerInfo(state=ServerState.STARTING, steps=steps)
    text = "\n".join(status_lines(ready_snapshot(server=starting)))
    assert "step     weights         running 6s   50 %" in text
    assert "graphs" not in text


def test_pending_refused_and_absent_patch_are_told() -> None:
    pending = Flip(epoch=9, to_mode="off", state=FlipState.ACKNOWLEDGED)
    refused = Flip(epoch=8, to_mode="chain", state=FlipState.REFUSED, refusal="no such state")
    speculation = SpeculationInfo(
        patch=PatchStatus.REFUSED, patch_reason="SGLang 0.5.30", pending=pending, last_flip=refused
    )
    text = "\n".join(status_lines(ready_snapshot(speculation=speculation)))
    assert "patch    refused: SGLang 0.5.30" in text
    assert "pending  off: epoch 9, takes effect at the next decode round" in text
    assert "         epoch 8 to chain refused: no such state" in text


def test_foreign_text_cannot_steer_the_terminal() -> None:
    evil = "x\x1b[2J\x1b]0;t\x07\x9b1m\u202ey\n\rz"
    snapshot = ready_snapshot(
        server=ServerInfo(model=evil, draft=evil, profile=evil, url=evil, reason=evil, remedy=evil, blockers=(evil,)),
        speculation=SpeculationInfo(
            mode=evil, actor=evil, patch=PatchStatus.REFUSED, patch_reason=evil, by_mode=(ModeNumbers(mode=evil),)
        ),
        gpus=(Gpu(index=0, uuid="", name="", lost=evil), Gpu(index=1, uuid="", name="", throttle=(evil,))),
    )
    text = "".join([*status_lines(snapshot), watch_line(snapshot)])
    assert not [c for c in text if ord(c) < 32 or 127 <= ord(c) < 160 or c == "\u202e"]


def test_json_is_the_whole_snapshot(daemon: ContractDaemon, specctl) -> None:
    daemon.set(engine=FULL.engine)
    done = specctl("status", "--json")
    assert done.code == 0
    assert msgspec.json.decode(done.out, type=Snapshot) == daemon.snapshot


def test_the_socket_option_stands_above_the_environment(daemon: ContractDaemon, specctl, monkeypatch) -> None:
    monkeypatch.setenv("SPECCTL_SOCKET", "/nowhere/x.sock")
    assert specctl("status").code == 3
    assert specctl("status", "--socket", str(daemon.socket)).code == 0
    assert specctl("--socket", str(daemon.socket), "version").code == 0


@pytest.mark.parametrize("as_json", [True, False])
def test_watch_prints_each_snapshot_on_a_line_until_the_daemon_ends(daemon: ContractDaemon, spawn, as_json) -> None:
    process = spawn("status", "--watch", *(["--json"] if as_json else []))
    assert process.stdout is not None
    first = process.stdout.readline()
    daemon.set(at=1001.0, engine=FULL.engine)
    second = process.stdout.readline()
    daemon.close()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert err.startswith("specctl: the daemon ended the stream. ")
    assert out == ""
    if as_json:
        assert [json.loads(x)["at"] for x in (first, second)] == [1000.0, 1001.0]
    else:
        assert "2,412 tok/s" in second
        assert "\x1b" not in first + second
