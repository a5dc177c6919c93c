"""Flips against an engine that refuses, lies or never obeys: what is shown is what was read back."""

from __future__ import annotations

import asyncio

import pytest

from faults.rig import Rig
from specctl.core.errors import Refused, UsageError
from specctl.core.states import FlipCause, FlipState, ServerState
from specctl.daemon.restart import RestartMode, RestartPolicy


async def test_flip_under_load_is_confirmed_by_read_back(rig: Rig) -> None:
    rig.script(running=2)
    await rig.up()
    accepted = await rig.mode("chain")
    flip = await rig.flip_end(accepted.epoch)
    assert flip.state is FlipState.CONFIRMED
    assert (flip.from_mode, flip.to_mode) == ("tree", "chain")
    assert flip.latency_ms is not None
    assert flip.latency_ms > 0
    assert flip.engine_ms == 1.5
    assert (flip.ranks_confirmed, flip.ranks_total) == (1, 1)
    assert flip.actor == "test"
    spec = rig.snapshots.make().speculation
    assert (spec.mode, spec.epoch, spec.cause) == ("chain", accepted.epoch, FlipCause.OPERATOR)
    assert spec.pending is None


async def test_idle_server_acknowledges_and_confirms_when_work_comes(rig: Rig) -> None:
    rig.settings(flip_timeout_s=0.5)
    await rig.up()
    accepted = await rig.mode("off")
    await rig.until(lambda: rig.flips(accepted.epoch)[-1].flip.state is FlipState.ACKNOWLEDGED, "acknowledged")
    await asyncio.sleep(1.5)
    spec = rig.snapshots.make().speculation
    assert spec.mode == "tree", "not done before a round was run"
    assert spec.pending is not None
    await rig.fake(running=1)
    flip = await rig.flip_end(accepted.epoch)
    assert flip.state is FlipState.CONFIRMED
    assert [e.flip.state for e in rig.flips(accepted.epoch)] == ["requested", "acknowledged", "confirmed"]
    assert (flip.latency_ms, flip.engine_ms) == (None, None), "the wait for work is no latency of the flip"
    assert "with the first round after idling" in rig.flips(accepted.epoch)[-1].message


async def test_refusal_comes_with_the_engines_reason(rig: Rig) -> None:
    """The engine answers [true] and refuses in its read-back."""
    rig.script(running=1, flips="refuse")
    await rig.up()
    flip = await rig.flip_end((await rig.mode("chain")).epoch)
    assert flip.state is FlipState.REFUSED
    assert flip.refusal == "the draft has no state for this mode"
    assert rig.snapshots.make().speculation.mode == "tree"


async def test_false_from_the_engine_is_a_refusal(rig: Rig) -> None:
    rig.script(running=1, flips="false")
    await rig.up()
    flip = await rig.flip_end((await rig.mode("chain")).epoch)
    assert flip.state is FlipState.REFUSED


async def test_command_that_is_held_but_never_obeyed_is_unconfirmed(rig: Rig) -> None:
    rig.script(running=1, flips="never")
    await rig.up()
    flip = await rig.flip_end((await rig.mode("chain")).epoch)
    assert flip.state is FlipState.UNCONFIRMED
    assert "runs no round in the new mode" in flip.refusal


async def test_one_rank_behind_is_not_confirmed(rig: Rig) -> None:
    rig.script(running=1, flips="half", ranks=2)
    await rig.up()
    flip = await rig.flip_end((await rig.mode("chain")).epoch)
    assert flip.state is FlipState.UNCONFIRMED
    assert (flip.ranks_confirmed, flip.ranks_total) == (1, 2)


async def test_newer_command_supersedes_a_pending_one(rig: Rig) -> None:
    await rig.up()
    first = await rig.mode("chain")
    second = await rig.mode("off")
    assert second.epoch == first.epoch + 1
    assert (await rig.flip_end(first.epoch)).refusal == f"superseded by epoch {second.epoch}"
    await rig.fake(running=1)
    assert (await rig.flip_end(second.epoch)).state is FlipState.CONFIRMED
    assert rig.snapshots.make().speculation.mode == "off"


async def test_mode_that_is_already_live_is_confirmed_again(rig: Rig) -> None:
    rig.script(running=1)
    await rig.up()
    assert (await rig.flip_end((await rig.mode("tree")).epoch)).state is FlipState.CONFIRMED


async def test_unknown_mode_and_no_server_are_refused(rig: Rig) -> None:
    with pytest.raises(Refused, match="the server is STOPPED"):
        await rig.mode("chain")
    await rig.up()
    with pytest.raises(UsageError, match=r"'fast' is not one of this profile's: tree, chain, off"):
        await rig.mode("fast")
    assert not [e for e in rig.events.page(0, 999) if e.flip]


async def test_stop_ends_a_pending_flip(rig: Rig) -> None:
    await rig.up()
    accepted = await rig.mode("chain")
    await rig.stop()
    await rig.until_state(ServerState.STOPPED)
    assert (await rig.flip_end(accepted.epoch)).state is FlipState.UNCONFIRMED


async def test_operators_mode_is_applied_again_after_a_crash(rig: Rig) -> None:
    rig.settings(restart=RestartPolicy(mode=RestartMode.ON_FAILURE, base_s=0.1, jitter=0.0))
    rig.script(running=1, exit_after_s=2.5)
    await rig.up()
    first = (await rig.mode("off")).epoch
    assert (await rig.flip_end(first)).state is FlipState.CONFIRMED
    rig.script(exit_after_s=0.0)
    await rig.until_state(ServerState.BACKOFF)
    flip = await rig.flip_end(first + 1)
    assert (flip.to_mode, flip.state, flip.cause) == ("off", FlipState.CONFIRMED, FlipCause.BOOT)
    assert flip.reason == "re-applied after restart"


async def test_operators_mode_is_applied_as_soon_as_a_restarted_server_can_be_flipped(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loaded machine may be READY before its schedulers answer; the choice must not be lost by that."""
    monkeypatch.setattr("specctl.daemon.watchers.INFO_EVERY_S", 0.2)
    rig.script(running=1)
    await rig.up()
    first = (await rig.mode("off")).epoch
    assert (await rig.flip_end(first)).state is FlipState.CONFIRMED
    rig.script(patch="absent")
    await rig.restart()
    await rig.until_state(ServerState.DEGRADED)
    await rig.fake(patch="active")
    flip = await rig.flip_end(first + 1)
    assert (flip.to_mode, flip.state, flip.cause) == ("off", FlipState.CONFIRMED, FlipCause.BOOT)


async def test_twenty_flips_in_a_row_all_read_back(rig: Rig) -> None:
    rig.script(running=4)
    await rig.up()
    for number in range(20):
        name = ("chain", "off", "tree")[number % 3]
        flip = await rig.flip_end((await rig.mode(name)).epoch)
        assert (flip.state, flip.to_mode) == (FlipState.CONFIRMED, name)
