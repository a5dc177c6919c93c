import json
from dataclasses import replace

import pytest

from client.contract_daemon import ContractDaemon
from specctl.core.api import ModeRequest
from specctl.core.errors import Refused
from specctl.core.snapshot import EngineNumbers, Flip, Reading, SpeculationInfo
from specctl.core.states import FlipState


def answer_with(daemon: ContractDaemon, state: FlipState, **more) -> None:
    """Accept a flip and end it at once, as a quick engine does."""

    def flip(request: ModeRequest):
        accepted = daemon.accept(7)
        daemon.finish_flip(Flip(epoch=7, to_mode=request.mode, state=state, **more))
        return accepted

    daemon.on["POST /v1/mode"] = flip


def test_without_a_name_prints_the_mode_alone(daemon: ContractDaemon, specctl) -> None:
    assert specctl("mode") == (0, "tree\n", "")
    shown = json.loads(specctl("mode", "--json").out)
    assert (shown["mode"], shown["epoch"], shown["modes"]) == ("tree", 1, ["tree", "chain", "off"])
    daemon.set(speculation=replace(daemon.snapshot.speculation, pending=Flip(epoch=9, to_mode="off")))
    assert specctl("mode") == (0, "tree\n", "mode off is pending\n")
    daemon.set(speculation=SpeculationInfo())
    assert specctl("mode") == (0, "-\n", "the mode is not known: the server is READY\n")


def test_a_flip_is_signed_and_not_waited_for(daemon: ContractDaemon, specctl) -> None:
    assert specctl("mode", "chain", "--reason", "ab by hand") == (0, "chain requested, epoch 7\n", "")
    assert daemon.requests == [("POST /v1/mode", ModeRequest(mode="chain", reason="ab by hand", actor="ana"))]
    assert json.loads(specctl("mode", "chain", "--json").out)["epoch"] == 7


def test_a_confirmed_flip_says_how_long_it_took(daemon: ContractDaemon, specctl) -> None:
    answer_with(daemon, FlipState.CONFIRMED, latency_ms=38.2)
    assert specctl("mode", "chain", "--wait") == (0, "chain confirmed, epoch 7, 38 ms\n", "")
    flip = json.loads(specctl("mode", "chain", "--wait", "--json").out)
    assert (flip["state"], flip["latency_ms"]) == ("confirmed", 38.2)


def test_acknowledged_on_an_idle_server_is_a_success_that_says_so(daemon: ContractDaemon, specctl) -> None:
    daemon.set(engine=EngineNumbers(running=Reading(value=0)))
    answer_with(daemon, FlipState.ACKNOWLEDGED)
    done = specctl("mode", "off", "--wait", "--json")
    assert done.code == 0
    assert json.loads(done.out)["state"] == "acknowledged"
    assert done.err == "the server is idle: mode off takes effect at the next decode round\n"


@pytest.mark.parametrize(
    ("state", "code", "text"), [(FlipState.REFUSED, 4, "no room"), (FlipState.UNCONFIRMED, 7, "not confirmed")]
)
def test_refused_and_unconfirmed_have_their_codes(daemon: ContractDaemon, specctl, state, code, text) -> None:
    answer_with(daemon, state, refusal="no room", ranks_confirmed=1, ranks_total=2)
    done = specctl("mode", "off", "--wait")
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("specctl: ")
    assert done.err.count("\n") == 1
    assert text in done.err


def test_no_outcome_in_time_is_a_timeout(daemon: ContractDaemon, specctl) -> None:
    done = specctl("mode", "off", "--wait", "--timeout", "0.1")
    assert (done.code, done.out) == (5, "")
    assert "flip 7 has no outcome after 0.1 s" in done.err


def test_the_daemons_refusal_is_passed_on(daemon: ContractDaemon, specctl) -> None:
    def refuse(_):
        raise Refused("the daemon is read-only", remedy="start it without --read-only")

    daemon.on["POST /v1/mode"] = refuse
    assert specctl("mode", "off") == (4, "", "specctl: the daemon is read-only. start it without --read-only\n")
