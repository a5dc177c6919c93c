from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specctl.core.modes import CHAIN, DEFAULT_MODES, OFF, TREE
from specctl.telemetry.meter import EngineMeter
from specctl.telemetry.pages import MetricsPage, ModeCounters
from specctl.telemetry.rates import CounterWindow, HistogramWindow

INF = float("inf")


def window(*samples: tuple[float, float]) -> CounterWindow:
    made = CounterWindow()
    for at, value in samples:
        made.add(at, value)
    return made


def test_rate_needs_two_samples() -> None:
    assert window().rate() is None
    assert window((0, 5)).rate() is None
    assert window((0, 5), (2, 25)).rate() == 10


def test_reset_of_the_counter_is_not_a_negative_rate() -> None:
    restarted = window((0, 1000), (1, 1100), (2, 10))
    assert restarted.rate() is None
    restarted.add(3, 60)
    assert restarted.rate() == 50
    assert restarted.resets == 1


def test_window_forgets_what_is_older() -> None:
    assert window(*[(t, 100.0 * t) for t in range(10)], (10, 900.0), (11, 900.0)).delta == 300


def test_counter_that_vanishes_has_no_rate() -> None:
    gone = window((0, 1), (1, 2))
    gone.add(2, None)
    assert gone.rate() is None


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 3), st.integers(0, 1000)), min_size=2, max_size=40))
def test_rate_is_never_negative_nor_above_the_fastest_step(steps: list[tuple[float, int]]) -> None:
    made, at, value, fastest = CounterWindow(), 0.0, 0.0, 0.0
    for seconds, growth in steps:
        made.add(at, value)
        at, value = at + seconds, value + growth
        fastest = max(fastest, growth / seconds)
    made.add(at, value)
    rate = made.rate()
    assert rate is not None
    assert 0 <= rate <= fastest * (1 + 1e-6)


def test_quantile_lies_in_its_bucket_and_counts_only_the_window() -> None:
    made = HistogramWindow()
    made.add(0, {0.1: 50, 0.2: 100, INF: 100})
    assert made.quantile(0.5) is None
    made.add(1, {0.1: 50, 0.2: 110, INF: 110})
    assert made.quantile(0.5) == pytest.approx(0.15)
    assert made.quantile(1.0) == pytest.approx(0.2)


def test_quantile_without_new_observations_is_unknown() -> None:
    made = HistogramWindow()
    made.add(0, {0.1: 5, INF: 5})
    made.add(1, {0.1: 5, INF: 5})
    assert made.quantile(0.99) is None


def test_quantile_beyond_the_last_bound_is_that_bound() -> None:
    made = HistogramWindow()
    made.add(0, {0.1: 0, INF: 0})
    made.add(1, {0.1: 1, INF: 10})
    assert made.quantile(0.99) == 0.1


@settings(deadline=None)
@given(st.lists(st.floats(0.001, 9.9), min_size=1, max_size=200), st.floats(0.01, 1.0))
def test_quantile_is_within_one_bucket_of_the_true_one(values: list[float], q: float) -> None:
    bounds = [0.5 * n for n in range(1, 21)]
    buckets = {b: float(sum(v <= b for v in values)) for b in bounds} | {INF: float(len(values))}
    made = HistogramWindow()
    made.add(0, dict.fromkeys(buckets, 0.0))
    made.add(1, buckets)
    ordered = sorted(values)
    rank = q * len(values)
    true = ordered[min(len(values) - 1, max(0, int(-(-rank // 1)) - 1))]
    assert made.quantile(q) == pytest.approx(true, abs=0.5 + 1e-6)


def busy(at: float, tokens: float, by_mode: dict[str, ModeCounters], running: float = 2) -> MetricsPage:
    return MetricsPage(
        at=at, decode_tokens=tokens, prefill_tokens=0, running=running, queued=0, kv_usage=0.1, by_mode=by_mode
    )


def counters(rounds: int, requests: int, length: float) -> ModeCounters:
    return ModeCounters(rounds, rounds * requests, int(rounds * requests * length), 0)


def test_tokens_per_second_reach_zero_within_two_polls_of_idleness() -> None:
    meter = EngineMeter()
    for t in range(6):
        meter.add(busy(t, 100.0 * t, {}))
    assert meter.numbers(5, None).tokens_per_second.value == pytest.approx(100)
    meter.add(busy(6, 540.0, {}, running=0))
    meter.add(busy(7, 540.0, {}, running=0))
    assert meter.numbers(7, None).tokens_per_second.value == 0


def test_acceptance_is_that_of_the_live_mode_alone() -> None:
    meter = EngineMeter()
    meter.add(busy(0, 0, {"tree": counters(100, 2, 2.5), "off": counters(50, 2, 1)}))
    meter.add(busy(1, 500, {"tree": counters(200, 2, 2.5), "off": counters(50, 2, 1)}))
    tree = meter.numbers(1, TREE)
    assert tree.acceptance_length.value == pytest.approx(2.5)
    assert tree.acceptance_rate.value == pytest.approx(0.75)
    off = meter.numbers(1, OFF)
    assert off.acceptance_length.value is None
    assert off.acceptance_length.note == "off drafts nothing: one token a round"
    assert meter.numbers(1, CHAIN).acceptance_length.value is None


def test_acceptance_is_undefined_in_off_not_zero() -> None:
    meter = EngineMeter()
    meter.add(busy(0, 0, {"off": counters(0, 2, 1)}))
    meter.add(busy(1, 0, {"off": counters(10, 2, 1)}))
    numbers = meter.numbers(1, OFF)
    for undefined in (numbers.acceptance_length, numbers.acceptance_rate):
        assert undefined.value is None
        assert undefined.note == "off drafts nothing: one token a round"


def test_a_mode_that_is_not_in_use_has_no_rate() -> None:
    meter = EngineMeter()
    meter.add(busy(0, 0, {"tree": counters(0, 2, 2.5), "off": counters(10, 2, 1)}))
    meter.add(busy(1, 0, {"tree": counters(100, 2, 2.5), "off": counters(10, 2, 1)}))
    tree, off = meter.by_mode(1, (TREE, OFF))
    assert tree.tokens_per_second.value is not None
    assert tree.tokens_per_second.value > 0
    assert off.tokens_per_second.value is None
    assert off.tokens_per_second.note == "no round in the last 5 s"


def flipped(at: float, tree: int, chain: int, live: str) -> MetricsPage:
    by_mode = {"tree": counters(tree, 1, 1), "chain": counters(chain, 1, 1)}
    return replace(busy(at, tree + chain, by_mode), active_mode={("0", "0"): live})


def test_rate_of_a_mode_is_over_the_time_in_which_it_was_live() -> None:
    """Else a mode would look slow for a whole window after each flip."""
    meter = EngineMeter()
    for t in range(8):
        meter.add(flipped(t, 100 * t, 0, "tree"))
    for t in range(8, 10):
        meter.add(flipped(t, 700, 80 * (t - 7), "chain"))
    tree, chain = meter.by_mode(9, (TREE, CHAIN))
    assert chain.tokens_per_second.value == pytest.approx(80)
    assert tree.tokens_per_second.value is None
    meter.add(flipped(10, 800, 160, "tree"))
    meter.add(flipped(11, 900, 160, "tree"))
    assert meter.by_mode(11, (TREE,))[0].tokens_per_second.value == pytest.approx(100)


def test_counters_that_nobody_has_read_are_unknown_and_an_unused_mode_is_zero() -> None:
    meter = EngineMeter()
    assert meter.by_mode(0, (TREE,))[0].rounds is None
    meter.add(busy(0, 0, {}))
    assert meter.by_mode(0, (TREE,))[0].committed_tokens is None
    meter.add(flipped(1, 5, 0, "tree"))
    assert meter.by_mode(1, (TREE, OFF))[1].rounds == 0


def test_numbers_carry_their_age_and_what_is_missing_says_why() -> None:
    meter = EngineMeter("0.5.9")
    meter.add(MetricsPage(at=10.0, running=1))
    numbers = meter.numbers(13.0, None)
    assert numbers.running.age == 3.0
    assert numbers.tokens_per_second.value is None
    assert numbers.tokens_per_second.note == "sglang:realtime_tokens_total is not exported by SGLang 0.5.9"
    assert numbers.queued.value is None


def test_frozen_counts_only_while_requests_run() -> None:
    meter = EngineMeter()
    meter.add(busy(0, 5, {}))
    meter.add(busy(10, 5, {}))
    assert meter.frozen_for() == 10
    meter.add(busy(11, 5, {}, running=0))
    assert meter.frozen_for() == 0
    meter.add(busy(12, 5, {}))
    meter.add(busy(15, 6, {}))
    assert meter.frozen_for() == 0


def test_definition_of_acceptance_over_random_rounds() -> None:
    """L = committed tokens / request rounds, the bonus token included; its rate is in [0, 1]."""
    rand = random.Random(3)
    accepted = [rand.randint(0, TREE.num_steps) for _ in range(500)]
    meter = EngineMeter()
    meter.add(busy(0, 0, {"tree": ModeCounters()}))
    meter.add(busy(1, 0, {"tree": ModeCounters(500, 500, sum(a + 1 for a in accepted), 7500)}))
    numbers = meter.numbers(1, TREE)
    assert numbers.acceptance_length.value == pytest.approx(1 + sum(accepted) / 500)
    assert numbers.acceptance_rate.value == pytest.approx(sum(accepted) / 500 / TREE.num_steps)
    by_mode = {n.mode: n for n in meter.by_mode(1, DEFAULT_MODES)}
    assert by_mode["tree"].acceptance_length.value == pytest.approx(numbers.acceptance_length.value)
    assert by_mode["off"].acceptance_length.value is None
