"""Pages recorded from real servers, by version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specctl.telemetry.pages import ModeCounters, parse_loads, parse_metrics, parse_server_info

FIXTURES = Path(__file__).parent / "fixtures"


def page(name: str):
    return parse_metrics((FIXTURES / name).read_text(), 1.0)


def test_data_parallel_ranks_are_summed() -> None:
    found = page("metrics-0.5.23-dp2.txt")
    assert found.decode_tokens == 272 + 272
    assert found.prefill_tokens == 25 + 12 + 24 + 12
    assert (found.running, found.queued, found.kv_usage) == (0, 0, 0)
    assert found.ttft[float("inf")] == 10


def test_tensor_parallel_ranks_are_not_summed() -> None:
    lines = [f'sglang:num_running_reqs{{dp_rank="{dp}",tp_rank="{tp}"}} {dp + 1}' for dp in (0, 1) for tp in (0, 1)]
    assert parse_metrics("\n".join(lines), 1.0).running == 3


def test_page_of_a_server_that_has_worked() -> None:
    found = page("metrics-0.5.23-busy.txt")
    assert (found.decode_tokens, found.prefill_tokens) == (10910, 732)
    assert (found.running, found.queued) == (0, 0)
    assert found.itl[float("inf")] == 4195


@pytest.mark.parametrize("name", ["metrics-0.5.9.txt", "metrics-0.5.15.txt"])
def test_what_an_old_version_does_not_export_is_unknown_not_zero(name: str) -> None:
    found = page(name)
    text = (FIXTURES / name).read_text()
    assert (found.decode_tokens is None) == ("sglang:realtime_tokens_total{" not in text)
    assert (found.running is None) == ("sglang:num_running_reqs{" not in text)
    assert found.by_mode == {}
    assert found.active_epoch == {}


def test_counters_of_the_engine_patch() -> None:
    found = page("metrics-specctl.txt")
    assert found.by_mode["chain"] == ModeCounters(411, 1227, 3675, 2454)
    assert found.by_mode["off"].drafted_tokens == 0
    assert found.active_epoch == {("0", "0"): 7}
    assert found.active_mode == {("0", "0"): "chain"}


def test_empty_page_knows_nothing() -> None:
    found = parse_metrics("", 1.0)
    assert (found.decode_tokens, found.running, found.queued, found.kv_usage) == (None, None, None, None)


def test_page_that_is_no_prometheus_text_is_an_error() -> None:
    with pytest.raises(ValueError):
        parse_metrics('sglang:num_running_reqs{dp_rank="0"} many', 1.0)


def test_server_info_keeps_read_back_and_no_secret() -> None:
    group = {
        "patch": "1",
        "mode": "off",
        "epoch": 3,
        "active_epoch": 3,
        "refusal": None,
        "new_field": [1],
        "tp_size": 2,
    }
    body = json.dumps(
        {
            "version": "0.5.23",
            "api_key": "hidden-1",
            "admin_api_key": "hidden-2",
            "max_running_requests": 8,
            "internal_states": [{"specctl": group, "other": {}}, None, {"avg_spec_accept_length": 2.0}],
        }
    )
    info = parse_server_info(body.encode(), 1.0)
    assert [g.mode for g in info.groups] == ["off"]
    assert info.groups[0].tp_size == 2
    assert "hidden" not in repr(info)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"internal_states": 7}', b"<html>"])
def test_broken_pages_are_errors(body: bytes) -> None:
    with pytest.raises(ValueError):
        parse_server_info(body, 1.0)


def test_loads_are_summed() -> None:
    assert parse_loads(b'{"loads": [{"num_running_reqs": 2}, {"num_running_reqs": 3, "x": 1}]}') == 5
