"""The pure half of the patch: commands and what they leave, without an engine."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specctl_engine.control import FlipControl
from specctl_engine.modes import CAUSES, EngineMode

MODES = (EngineMode(0, "tree", 2, 4, 16), EngineMode(1, "chain", 2, 1, 3), EngineMode(2, "off", 0, 1, 1))

numbers = st.one_of(
    st.integers(-3, 6),
    st.floats(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.sampled_from([1e308, float("inf")]),
)
requests = st.dictionaries(
    st.sampled_from(["specctl_mode", "specctl_epoch", "specctl_cause", "specctl_other", "pp_max_micro_batch_size"]),
    numbers,
)


def control() -> FlipControl:
    return FlipControl(MODES, MODES[0])


def command(mode: int, epoch: int, cause: int = 0) -> dict[str, Any]:
    return {"specctl_mode": mode, "specctl_epoch": epoch, "specctl_cause": cause}


def round_of(flip: FlipControl) -> EngineMode:
    """What the worker does at the top of a decode round."""
    if flip.due() is not None:
        flip.applied()
    return flip.active


@given(st.lists(requests, max_size=20))
def test_any_sequence_of_requests_leaves_a_mode_that_exists(sent: list[dict[str, Any]]) -> None:
    flip = control()
    for request in sent:
        before = {k: v for k, v in flip.report().items() if k != "refusal"}
        if not flip.command(request):
            assert {k: v for k, v in flip.report().items() if k != "refusal"} == before
            assert flip.refusal is not None
            assert flip.refusal["reason"]
        msgspec.msgpack.encode(flip.report())
        assert round_of(flip) in MODES
        assert flip.active_epoch <= flip.epoch


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=30))
def test_the_newest_command_is_the_live_mode_after_the_next_round(steps: list[tuple[int, bool]]) -> None:
    flip = control()
    wanted = 0
    for epoch, (mode, with_round) in enumerate(steps, 1):
        assert flip.command(command(mode, epoch))
        wanted = mode
        if with_round:
            assert round_of(flip).id == wanted
            assert flip.active_epoch == epoch
    assert round_of(flip).id == wanted


@given(st.lists(requests, max_size=20))
def test_two_ranks_that_get_the_same_requests_agree(sent: list[dict[str, Any]]) -> None:
    ranks = control(), control()
    for request in sent:
        assert len({flip.command(request) for flip in ranks}) == 1
        reports = [{k: v for k, v in flip.report().items() if k != "engine_ms"} for flip in ranks]
        assert str(reports[0]) == str(reports[1])
        assert len({round_of(flip) for flip in ranks}) == 1


@pytest.mark.parametrize("missing", [keys for n in (1, 2) for keys in itertools.combinations(command(1, 1), n)])
def test_a_command_with_a_key_missing_is_refused_and_names_it(missing: tuple[str, ...]) -> None:
    flip = control()
    request = {key: value for key, value in command(1, 1).items() if key not in missing}
    assert not flip.command(request)
    assert flip.refusal is not None
    assert all(key in flip.refusal["reason"] for key in missing)
    assert round_of(flip).name == "tree"


def test_a_command_for_the_live_mode_is_confirmed_at_once() -> None:
    flip = control()
    assert flip.command(command(0, 5, CAUSES.index("policy")))
    assert (flip.active_epoch, flip.report()["cause"], flip.flips) == (5, "policy", 0)


def test_the_read_back_shows_a_pending_mode_until_its_round() -> None:
    flip = control()
    flip.command(command(2, 1))
    assert flip.report()["pending"] == "off"
    assert flip.report()["engine_ms"] is None
    round_of(flip)
    assert flip.report()["pending"] is None
    assert flip.report()["engine_ms"] >= 0
