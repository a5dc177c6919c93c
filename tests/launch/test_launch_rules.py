import json

import pytest

from specctl.core.modes import CHAIN, TREE
from specctl_launch.checks import CheckStatus
from specctl_launch.preflight import run_preflight
from specctl_launch.rules import RULES, broken_rules

BROKEN = [
    ("tree-backend", ["--attention-backend", "trtllm_mha"]),
    ("tree-backend", ["--decode-attention-backend", "flashmla"]),
    ("tree-backend", ["--speculative-draft-attention-backend=trtllm_mha"]),
    ("tree-pages", ["--page-size", "16"]),
    ("tree-sampling", ["--speculative-use-rejection-sampling"]),
    ("adaptive", ["--speculative-adaptive"]),
    ("adaptive", ["--speculative-adaptive-config", "x.json"]),
    ("attention-dp", ["--enable-dp-attention"]),
    ("attention-dp", ["--enable-dp-att"]),
    ("attention-dp-size", ["--attn-dp-size", "2"]),
    ("disaggregation", ["--disaggregation-mode", "prefill"]),
    ("two-batch-overlap", ["--enable-two-batch-overlap"]),
    ("pdmux", ["--enable-pdmux"]),
    ("multi-layer-eagle", ["--enable-multi-layer-eagle"]),
    ("pipeline", ["--pp-size", "2"]),
    ("pipeline", ["--pipeline-parallel-size=4"]),
    ("nodes", ["--nnodes", "2"]),
    ("ray", ["--use-ray"]),
    ("lora", ["--lora-paths", "a=b"]),
    ("hisparse", ["--enable-hisparse"]),
    ("expert-metrics", ["--enable-expert-distribution-metrics"]),
    ("grpc", ["--grpc-mode"]),
    ("hierarchical-cache", ["--enable-hierarchical-cache"]),
]


@pytest.mark.parametrize(("name", "arguments"), BROKEN)
def test_each_rule_is_broken_by_its_argument(name: str, arguments: list[str]):
    assert [one.rule.name for one in broken_rules(arguments, TREE, "intel_amx")] == [name]


def test_every_rule_has_a_case_and_says_why_and_what_to_do():
    assert {rule.name for rule in RULES} == {name for name, _ in BROKEN}
    for rule in RULES:
        assert rule.reason
        assert rule.remedy
        assert rule.upstream
        assert rule.flags


@pytest.mark.parametrize(
    "arguments",
    [
        ["--disaggregation-mode", "null"],
        ["--pp-size", "1"],
        ["--nnodes=1"],
        ["--attn-dp-size", "1"],
        ["--attention-backend", "triton"],
        ["--page-size", "1"],
        ["--enable-metrics", "--log-requests"],
    ],
)
def test_harmless_arguments(arguments: list[str]):
    assert broken_rules(arguments, TREE, "intel_amx") == []


def test_a_chain_may_have_what_only_a_tree_may_not():
    arguments = ["--attention-backend", "trtllm_mha", "--page-size", "64"]
    assert broken_rules(arguments, CHAIN, "trtllm_mha") == []
    names = [one.rule.name for one in broken_rules(arguments, TREE, "trtllm_mha")]
    assert names == ["tree-backend", "tree-pages"]


@pytest.mark.parametrize("backend", ["flashinfer", "fa3", "triton"])
def test_three_backends_take_a_tree_with_pages(backend: str):
    assert broken_rules(["--page-size", "16"], TREE, backend) == []


def test_profile_keys_are_checked_like_arguments(planner):
    plan = planner(engine__kind="cuda", server__attention_backend="trtllm_mha", server__page_size="16")
    found = [r for r in run_preflight(plan, {}) if r.name == "combinations"]
    assert [r.message for r in found] == [
        "--attention-backend trtllm_mha: this attention backend verifies chains only (topk 1) "
        "(sglang #15122, arg_groups/speculative_hook.py)",
        "--page-size 16: a tree needs page size 1 on this attention backend (sglang arg_groups/speculative_hook.py)",
    ]
    assert all(r.status is CheckStatus.FAIL for r in found)


def test_a_warning_stops_nothing(planner):
    plan = planner(server__extra_args=json.dumps(["--enable-hierarchical-cache"]))
    [result] = [r for r in run_preflight(plan, {}) if r.name == "combinations"]
    assert result.status is CheckStatus.WARN
