"""The flip on the real engine: text, counters, read-back, refusals, KV accounting."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from engine.real_server import MODES, RealServer
from engine.traffic import Outcome, Request, differences, run_traffic, run_with_flips
from specctl_demo import prompts

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


def rank(**labels: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({"tp_rank": "0", "dp_rank": "0", **labels}.items()))


def settle(server: RealServer, mode: str) -> None:
    """Bring the server to a mode; one short request makes the round that a pending flip waits for."""
    epoch = server.flip(mode)
    server.generate("ready", 4)
    assert server.specctl()["active_epoch"] == epoch


def test_the_patch_is_in_and_says_so(server: RealServer) -> None:
    active = [status for status in server.statuses() if status["status"] == "active"]
    assert [(s["tp_rank"], s["dp_rank"]) for s in active] == [(0, 0)]
    assert not [status for status in server.statuses() if status["status"] == "refused"]
    report = server.specctl()
    assert list(report["modes"]) == list(MODES)
    assert report["tp_size"] == 1


def test_text_under_flips_is_that_of_a_server_without_speculation(
    server: RealServer, requests_: list[Request], reference: list[Outcome]
) -> None:
    before = server.specctl()["flips"]
    outcomes, commands = asyncio.run(run_with_flips(server, requests_, 6, modes=MODES, every_s=0.03))
    assert differences(reference, outcomes) == []
    assert commands > 20
    assert server.specctl()["flips"] - before > 20


@pytest.mark.parametrize("mode", MODES)
def test_text_in_one_mode_is_that_of_a_server_without_speculation(
    server: RealServer, requests_: list[Request], reference: list[Outcome], mode: str
) -> None:
    settle(server, mode)
    outcomes = asyncio.run(run_traffic(server.url, requests_[:32], 4))
    assert differences(reference[:32], outcomes) == []
    assert server.specctl()["mode"] == mode


def test_no_kv_slot_is_lost(server: RealServer) -> None:
    server.flush_cache()
    time.sleep(1.0)
    assert server.used_tokens() == 0


def test_every_mode_counts_what_a_client_counts(server: RealServer) -> None:
    texts = [text for name in ("low", "medium", "high") for text in prompts()[name][:3]]
    for mode in MODES:
        settle(server, mode)
        before = server.specctl()["by_mode"]
        for text in texts:
            server.generate(text, 61)
        after = server.specctl()["by_mode"]
        gained = {name: {key: after[name][key] - before[name][key] for key in after[name]} for name in after}
        moved = gained.pop(mode)
        assert all(value == 0 for other in gained.values() for value in other.values()), gained
        # The first token comes from the prefill; the last round may commit more than the request still wanted.
        delivered = 60 * len(texts)
        assert delivered <= moved["committed_tokens"] <= delivered + 2 * len(texts)
        assert moved["request_rounds"] == moved["rounds"]
        drafts = {"tree": 15, "chain": 2, "off": 0}[mode]
        assert moved["drafted_tokens"] == drafts * moved["request_rounds"]
        if mode == "off":
            assert moved["committed_tokens"] == moved["rounds"] == delivered


def test_metrics_say_what_the_read_back_says(server: RealServer) -> None:
    settle(server, "chain")
    report = server.specctl()
    for mode, counted in report["by_mode"].items():
        for key, value in counted.items():
            assert server.metrics(f"specctl_{key}_total")[rank(mode=mode)] == value
    live = server.metrics("specctl_active_mode")
    assert {mode: live[rank(mode=mode)] for mode in MODES} == {"tree": 0, "chain": 1, "off": 0}
    assert server.metrics("specctl_active_epoch")[rank()] == report["active_epoch"]
    assert sum(server.metrics("specctl_flips_total").values()) == report["flips"]


@pytest.mark.parametrize("mode", ["tree", "chain"])
def test_acceptance_follows_the_predictability_of_the_text(server: RealServer, mode: str) -> None:
    settle(server, mode)
    lengths: dict[str, float] = {}
    for family in ("low", "medium", "high"):
        before = server.specctl()["by_mode"][mode]
        for text in prompts()[family][:8]:
            server.generate(text, 128)
        after = server.specctl()["by_mode"][mode]
        rounds = after["request_rounds"] - before["request_rounds"]
        lengths[family] = (after["committed_tokens"] - before["committed_tokens"]) / rounds
    assert 1.0 <= lengths["low"] < min(lengths["medium"], lengths["high"]) <= 3.0, lengths
    if mode == "chain":
        assert lengths["medium"] < lengths["high"], lengths
    else:
        assert sum(lengths.values()) / 3 > 2.0, lengths


def test_acceptance_right_after_off_is_the_steady_one(server: RealServer) -> None:
    """Text alone cannot see a draft that resumes from unwritten KV: its acceptance does."""
    texts = prompts()["high"][:4] + prompts()["medium"][:4]

    def acceptance(flipping: bool) -> float:
        settle(server, "tree")
        server.flush_cache()
        before = server.specctl()["by_mode"]["tree"]

        async def run() -> None:
            traffic = asyncio.create_task(run_traffic(server.url, [Request(text, 150) for text in texts], 4))
            while not traffic.done():
                if flipping:
                    for mode in ("off", "tree"):
                        await asyncio.to_thread(server.flip, mode)
                        await asyncio.sleep(0.15)
                else:
                    await asyncio.sleep(0.1)
            await traffic

        asyncio.run(run())
        after = server.specctl()["by_mode"]["tree"]
        rounds = after["request_rounds"] - before["request_rounds"]
        assert rounds > 50
        return float((after["committed_tokens"] - before["committed_tokens"]) / rounds)

    steady, flipped = acceptance(flipping=False), acceptance(flipping=True)
    # With the draft's catch-up left out this is 0.91 of the steady value on the CPU engine.
    assert flipped > 0.95 * steady, (steady, flipped)


def test_the_prefix_cache_keeps_no_position_that_the_draft_has_yet_to_write(server: RealServer) -> None:
    prompt, tokens = list(range(100, 140)), 41

    def kept(mode: str) -> int:
        """How many of the 40 decoded positions a second turn finds in the prefix cache."""
        settle(server, mode)
        server.flush_cache()
        first = server.generate_ids(prompt, tokens)
        second = server.generate_ids([*prompt, *first["output_ids"]], 1)
        return int(second["meta_info"]["cached_tokens"]) - len(prompt)

    # EAGLE's cache keys are pairs of tokens, so the last position never matches.
    assert kept("tree") == 39
    # 3 rounds of `settle` and 40 of the request: the queue of 16 was written twice, 11 positions were waiting.
    assert kept("off") == 39 - 11


def test_a_flip_of_an_idle_server_waits_for_its_next_round(server: RealServer) -> None:
    settle(server, "tree")
    epoch = server.flip("off")
    report = server.specctl()
    assert (report["mode"], report["pending"], report["epoch"]) == ("tree", "off", epoch)
    assert report["active_epoch"] < epoch
    server.generate("go on", 3)
    report = server.specctl()
    assert (report["mode"], report["pending"], report["active_epoch"]) == ("off", None, epoch)
    assert report["engine_ms"] > 0


def test_taking_a_pending_flip_back_changes_nothing(server: RealServer) -> None:
    settle(server, "tree")
    flips = server.specctl()["flips"]
    server.flip("off")
    epoch = server.flip("tree")
    report = server.specctl()
    assert (report["mode"], report["pending"], report["active_epoch"]) == ("tree", None, epoch)
    server.generate("go on", 3)
    assert server.specctl()["flips"] == flips


def test_commands_between_two_rounds_coalesce(server: RealServer) -> None:
    settle(server, "tree")
    flips = server.specctl()["flips"]
    server.flip("off")
    epoch = server.flip("chain")
    server.generate("go on", 3)
    report = server.specctl()
    assert (report["mode"], report["active_epoch"], report["flips"]) == ("chain", epoch, flips + 1)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"specctl_mode": 1}, "specctl_epoch, specctl_cause missing"),
        ({"specctl_mode": 1, "specctl_epoch": 10**9}, "specctl_cause missing"),
        ({"specctl_mode": 9, "specctl_epoch": 10**9, "specctl_cause": 0}, "specctl_mode 9 is not one of 0 to 2"),
        ({"specctl_mode": -1, "specctl_epoch": 10**9, "specctl_cause": 0}, "specctl_mode -1 is not one of"),
        ({"specctl_mode": 1.5, "specctl_epoch": 10**9, "specctl_cause": 0}, "specctl_mode 1.5 is not a whole number"),
        ({"specctl_mode": 1, "specctl_epoch": 0, "specctl_cause": 0}, "specctl_epoch 0 is not newer than"),
        ({"specctl_mode": 1, "specctl_epoch": 10**9, "specctl_cause": 7}, "specctl_cause 7 is not one of"),
        ({"specctl_mode": 1, "specctl_epoch": 10**9, "specctl_cause": 0, "specctl_x": 1}, "specctl_x cannot be part"),
        (
            {"specctl_mode": 1, "specctl_epoch": 10**9, "specctl_cause": 0, "pp_max_micro_batch_size": 1},
            "pp_max_micro_batch_size cannot be part",
        ),
    ],
)
def test_a_refused_command_changes_nothing_but_the_reason(
    server: RealServer, keys: dict[str, Any], reason: str
) -> None:
    same = ("mode", "epoch", "active_epoch", "pending", "flips")
    before = server.specctl()
    assert server.command(**keys) == [False]
    after = server.specctl()
    assert reason in after["refusal"]["reason"]
    assert {key: before[key] for key in same} == {key: after[key] for key in same}


def test_an_epoch_counts_once(server: RealServer) -> None:
    epoch = server.flip("off")
    number = MODES.index("chain")
    assert server.command(specctl_mode=number, specctl_epoch=epoch, specctl_cause=0) == [False]
    server.generate("go on", 3)
    assert server.specctl()["mode"] == "off"


def test_upstream_keys_still_reach_upstream(server: RealServer) -> None:
    assert server.command(pp_max_micro_batch_size=4) == [True]
    assert server.command(no_such_key=4) == [False]
