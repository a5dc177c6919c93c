import threading
from dataclasses import replace

import pytest

from client.contract_daemon import ContractDaemon, stopped_snapshot
from specctl.client.blocking import Client
from specctl.client.waiting import wait_for_flip, wait_for_state
from specctl.core.errors import NotConfirmed, Refused, ServerFailed, WaitTimeout
from specctl.core.snapshot import EngineNumbers, Flip, Reading
from specctl.core.states import FlipState, ServerState

PLENTY = 30.0
SHORT = 0.2


def flip(state: FlipState, epoch: int = 7, **more: object) -> Flip:
    return Flip(epoch=epoch, to_mode="chain", state=state, ranks_total=1, **more)  # type: ignore[arg-type]


def once_streaming(daemon: ContractDaemon, *steps: object) -> threading.Thread:
    """Run `steps` (functions) after the waiter has connected."""

    def work() -> None:
        with daemon.changed:
            daemon.changed.wait_for(lambda: daemon.streams > 0, PLENTY)
        for step in steps:
            step()  # type: ignore[operator]

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_confirmed_flip_is_returned_past_other_flips(daemon: ContractDaemon) -> None:
    done = flip(FlipState.CONFIRMED, latency_ms=12.5)
    once_streaming(
        daemon,
        lambda: daemon.finish_flip(flip(FlipState.REFUSED, epoch=6)),
        lambda: daemon.finish_flip(flip(FlipState.ACKNOWLEDGED)),
        lambda: daemon.finish_flip(done),
    )
    assert wait_for_flip(Client(daemon.socket), daemon.accept(7), PLENTY) == done


def test_an_outcome_from_before_the_wait_is_found(daemon: ContractDaemon) -> None:
    accepted = daemon.accept(7)
    daemon.finish_flip(flip(FlipState.CONFIRMED))
    assert wait_for_flip(Client(daemon.socket), accepted, PLENTY).state is FlipState.CONFIRMED


@pytest.mark.parametrize(
    ("state", "error", "code"), [(FlipState.REFUSED, Refused, 4), (FlipState.UNCONFIRMED, NotConfirmed, 7)]
)
def test_refused_and_unconfirmed_are_errors(
    daemon: ContractDaemon, state: FlipState, error: type[Exception], code: int
) -> None:
    accepted = daemon.accept(7)
    daemon.finish_flip(flip(state, refusal="no"))
    with pytest.raises(error) as found:
        wait_for_flip(Client(daemon.socket), accepted, PLENTY)
    assert found.value.exit_code == code  # type: ignore[attr-defined]


def test_acknowledged_is_an_outcome_on_an_idle_server_only(daemon: ContractDaemon) -> None:
    accepted = daemon.accept(7)
    daemon.finish_flip(flip(FlipState.ACKNOWLEDGED))
    with pytest.raises(WaitTimeout, match="flip 7 has no outcome"):
        wait_for_flip(Client(daemon.socket), accepted, SHORT)
    daemon.set(engine=EngineNumbers())
    with pytest.raises(WaitTimeout):
        wait_for_flip(Client(daemon.socket), accepted, SHORT)
    daemon.set(engine=EngineNumbers(running=Reading(value=0), queued=Reading(value=0)))
    assert wait_for_flip(Client(daemon.socket), accepted, PLENTY).state is FlipState.ACKNOWLEDGED


def test_a_flip_that_a_later_one_replaced_is_not_confirmed(daemon: ContractDaemon) -> None:
    accepted = daemon.accept(7)
    daemon.finish_flip(flip(FlipState.CONFIRMED, epoch=8))
    with pytest.raises(NotConfirmed, match="replaced by flip 8"):
        wait_for_flip(Client(daemon.socket), accepted, PLENTY)


def test_a_server_that_dies_ends_the_wait_for_a_flip(daemon: ContractDaemon) -> None:
    once_streaming(daemon, lambda: daemon.set_state(ServerState.FAILED, reason="exit 1", remedy="look"))
    with pytest.raises(ServerFailed, match=r"exit 1\. look"):
        wait_for_flip(Client(daemon.socket), daemon.accept(7), PLENTY)


def test_waits_through_a_start_and_tells_it(daemon: ContractDaemon) -> None:
    daemon.set(server=stopped_snapshot().server)
    seen: list[ServerState] = []
    once_streaming(
        daemon,
        lambda: daemon.set_state(ServerState.PREFLIGHT),
        lambda: daemon.set_state(ServerState.STARTING),
        lambda: daemon.set_state(ServerState.READY, run=4),
    )
    snapshot = wait_for_state(
        Client(daemon.socket),
        [ServerState.READY],
        PLENTY,
        after_event=daemon.accept().after_event,
        on_snapshot=lambda s: seen.append(s.server.state),
    )
    assert snapshot.server.run == 4
    assert seen[0] is ServerState.STOPPED
    assert seen[-1] is ServerState.READY


def test_an_old_failure_is_not_the_outcome_of_a_new_start(daemon: ContractDaemon) -> None:
    daemon.set_state(ServerState.FAILED, reason="old")
    after = daemon.accept().after_event
    with pytest.raises(WaitTimeout, match="the server is FAILED, not READY"):
        wait_for_state(Client(daemon.socket), [ServerState.READY], SHORT, after_event=after)
    daemon.set_state(ServerState.PREFLIGHT)
    daemon.set_state(ServerState.FAILED, reason="new")
    with pytest.raises(ServerFailed, match="new") as found:
        wait_for_state(Client(daemon.socket), [ServerState.READY], PLENTY, after_event=after)
    assert found.value.exit_code == 6


def test_degraded_is_not_ready_but_started(daemon: ContractDaemon) -> None:
    daemon.set_state(ServerState.DEGRADED, reason="patch refused")
    client = Client(daemon.socket)
    with pytest.raises(ServerFailed, match="DEGRADED: patch refused"):
        wait_for_state(client, [ServerState.READY], PLENTY)
    started = wait_for_state(client, [ServerState.STARTING, ServerState.DEGRADED], PLENTY)
    assert started.server.state is ServerState.DEGRADED


def test_restart_is_not_content_with_the_old_run(daemon: ContractDaemon) -> None:
    accepted = daemon.accept()
    once_streaming(
        daemon,
        lambda: daemon.set_state(ServerState.STOPPING),
        lambda: daemon.set_state(ServerState.STOPPED),
        lambda: daemon.set_state(ServerState.STARTING, run=4),
        lambda: daemon.set_state(ServerState.READY),
    )
    snapshot = wait_for_state(
        Client(daemon.socket), [ServerState.READY], PLENTY, after_event=accepted.after_event, new_run_after=3
    )
    assert snapshot.server.run == 4


def test_restart_that_fails_before_a_new_run_is_an_error(daemon: ContractDaemon) -> None:
    accepted = daemon.accept()
    once_streaming(
        daemon,
        lambda: daemon.set_state(ServerState.STOPPED),
        lambda: daemon.set_state(ServerState.FAILED, reason="port 30000 is taken"),
    )
    with pytest.raises(ServerFailed, match="port 30000"):
        wait_for_state(
            Client(daemon.socket), [ServerState.READY], PLENTY, after_event=accepted.after_event, new_run_after=3
        )


def test_stopping_ends_when_nothing_is_left(daemon: ContractDaemon) -> None:
    once_streaming(
        daemon, lambda: daemon.set_state(ServerState.STOPPING), lambda: daemon.set_state(ServerState.STOPPED)
    )
    after = wait_for_state(Client(daemon.socket), [ServerState.STOPPED], PLENTY)
    assert after.server == replace(daemon.snapshot.server, state=ServerState.STOPPED)
