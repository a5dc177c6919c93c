from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from specctl_engine.counters import Counters, batch_bucket
from specctl_engine.modes import EngineMode

MODES = (EngineMode(0, "tree", 2, 4, 16), EngineMode(1, "chain", 2, 1, 3), EngineMode(2, "off", 0, 1, 1))


@pytest.fixture
def counters() -> Counters:
    made = [c for c in list(REGISTRY._collector_to_names) if getattr(c, "_name", "").startswith("specctl_")]
    for collector in made:
        REGISTRY.unregister(collector)
    return Counters(MODES, tp_rank=0, dp_rank=0)


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, {"tp_rank": "0", "dp_rank": "0", **labels})


@given(st.integers(1, 5000))
def test_a_bucket_is_the_next_power_of_two(size: int) -> None:
    bucket = batch_bucket(size)
    assert bucket & (bucket - 1) == 0
    assert bucket // 2 < size <= bucket


def test_a_round_counts_its_running_requests(counters: Counters) -> None:
    counters.committed(MODES[0], [3, 1])
    counters.committed(MODES[2], [1, 1, 1])
    report = counters.report()
    assert report["tree"] == {"rounds": 1, "request_rounds": 2, "committed_tokens": 4, "drafted_tokens": 30}
    assert report["off"] == {"rounds": 1, "request_rounds": 3, "committed_tokens": 3, "drafted_tokens": 0}
    assert value("specctl_committed_tokens_total", mode="tree") == 4
    assert value("specctl_drafted_tokens_total", mode="off") == 0


def test_a_round_whose_requests_had_all_ended_is_no_round(counters: Counters) -> None:
    counters.committed(MODES[0], [])
    assert counters.report()["tree"]["rounds"] == 0


def test_only_rounds_in_a_row_are_timed(counters: Counters) -> None:
    def timed(mode: str, bucket: int) -> float:
        return value("specctl_round_seconds_count", mode=mode, batch_bucket=str(bucket)) or 0

    counters.round_starts(MODES[0], 3)
    counters.round_starts(MODES[0], 4)
    assert timed("tree", 4) == 1
    counters.round_starts(MODES[0], 5)
    counters.round_starts(MODES[1], 5)
    counters.interrupted()
    counters.round_starts(MODES[1], 5)
    assert (timed("tree", 4), timed("tree", 8), timed("chain", 8)) == (1, 0, 0)
    counters.round_starts(MODES[1], 6)
    assert timed("chain", 8) == 1


def test_one_mode_is_live(counters: Counters) -> None:
    counters.live(MODES[1], 7)
    assert [value("specctl_active_mode", mode=m.name) for m in MODES] == [0, 1, 0]
    assert value("specctl_active_epoch") == 7
