"""Launch arguments that cannot be combined with flips: data, one row a rule.

A server that was started with one of them would answer, and flip wrongly, hang or crash later. Upstream references:
an issue of sgl-project/sglang, or a file of SGLang 0.5.23 below `sglang/srt/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specctl.core.modes import Mode
from specctl_launch.argv import flags_of, means

TREE_BACKENDS = ("flashinfer", "fa3", "triton")
_CHAIN_BACKENDS = ("trtllm_mha", "trtllm_mla", "flashmla", "cutlass_mla")
_BACKEND_FLAGS = (
    "--attention-backend",
    "--prefill-attention-backend",
    "--decode-attention-backend",
    "--speculative-draft-attention-backend",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One combination that is refused, or only warned about.

    flags: any of them. values: only with one of these values; empty = with any. above: only with a number above it.
    tree_only: only when the boot mode is a tree. unless_backend: not with these attention backends.
    """

    name: str
    flags: tuple[str, ...]
    reason: str
    remedy: str
    upstream: str
    values: tuple[str, ...] = ()
    above: int | None = None
    tree_only: bool = False
    unless_backend: tuple[str, ...] = ()
    warns: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A rule that the arguments break, and the argument that does."""

    rule: Rule
    argument: str


RULES: tuple[Rule, ...] = (
    Rule(
        name="tree-backend",
        flags=_BACKEND_FLAGS,
        values=_CHAIN_BACKENDS,
        tree_only=True,
        reason="this attention backend verifies chains only (topk 1)",
        remedy=f"Use {', '.join(TREE_BACKENDS)}, or a profile without a tree",
        upstream="#15122, arg_groups/speculative_hook.py",
    ),
    Rule(
        name="tree-pages",
        flags=("--page-size",),
        above=1,
        tree_only=True,
        unless_backend=TREE_BACKENDS,
        reason="a tree needs page size 1 on this attention backend",
        remedy=f"Set server.page_size to 1, or use {', '.join(TREE_BACKENDS)}",
        upstream="arg_groups/speculative_hook.py",
    ),
    Rule(
        name="tree-sampling",
        flags=("--speculative-use-rejection-sampling", "--speculative-use-block-verification"),
        tree_only=True,
        reason="it verifies chains only (topk 1)",
        remedy="Leave it out",
        upstream="speculative/eagle_worker_v2.py",
    ),
    Rule(
        name="adaptive",
        flags=("--speculative-adaptive", "--speculative-adaptive-config"),
        reason="it changes the same state as flips do, without telling anyone",
        remedy="Leave it out",
        upstream="speculative/adaptive_spec_params.py",
    ),
    Rule(
        name="attention-dp",
        flags=("--enable-dp-attention",),
        reason="ranks of attention data parallelism would flip in different rounds and hang",
        remedy="Use server.tp, or server.dp without attention data parallelism",
        upstream="#29144, #35898",
    ),
    Rule(
        name="attention-dp-size",
        flags=("--attn-dp-size",),
        above=1,
        reason="ranks of attention data parallelism would flip in different rounds and hang",
        remedy="Use server.tp, or server.dp without attention data parallelism",
        upstream="#29144, #35898",
    ),
    Rule(
        name="disaggregation",
        flags=("--disaggregation-mode",),
        values=("prefill", "decode"),
        reason="prefill/decode disaggregation ships draft state of one width between servers",
        remedy="Serve prefill and decode in one server",
        upstream="#14368",
    ),
    Rule(
        name="two-batch-overlap",
        flags=("--enable-two-batch-overlap",),
        reason="a flip would replace the attention backend that splits the batch",
        remedy="Leave it out",
        upstream="speculative/adaptive_spec_params.py",
    ),
    Rule(
        name="pdmux",
        flags=("--enable-pdmux",),
        reason="a flip does not reach the decode backends of multiplexed prefill",
        remedy="Leave it out",
        upstream="speculative/adaptive_spec_params.py",
    ),
    Rule(
        name="multi-layer-eagle",
        flags=("--enable-multi-layer-eagle",),
        reason="its worker cannot change modes",
        remedy="Leave it out, or use a single-layer EAGLE-3 draft",
        upstream="#36536",
    ),
    Rule(
        name="pipeline",
        flags=("--pp-size", "--pipeline-parallel-size"),
        above=1,
        reason="pipeline parallelism with speculation drafts a round ahead",
        remedy="Use server.tp instead",
        upstream="arg_groups/validation_hook.py",
    ),
    Rule(
        name="nodes",
        flags=("--nnodes",),
        above=1,
        reason="the local launcher starts the processes of one host only",
        remedy="Use one server a host",
        upstream="arg_groups/validation_hook.py",
    ),
    Rule(
        name="ray",
        flags=("--use-ray",),
        reason="Ray's scheduler actors load no plugins, so the engine patch would be absent",
        remedy="Leave it out",
        upstream="ray/scheduler_actor.py",
    ),
    Rule(
        name="lora",
        flags=("--enable-lora", "--lora-paths"),
        reason="a flip does not rebuild the LoRA metadata of CUDA graphs",
        remedy="Serve merged weights",
        upstream="arg_groups/lora_hook.py",
    ),
    Rule(
        name="hisparse",
        flags=("--enable-hisparse",),
        tree_only=True,
        reason="hierarchical sparse attention verifies chains only (topk 1)",
        remedy="Leave it out, or use a profile without a tree",
        upstream="arg_groups/hisparse_hook.py",
    ),
    Rule(
        name="expert-metrics",
        flags=("--enable-expert-distribution-metrics",),
        reason="with two or more draft steps the scheduler crashes in a loop",
        remedy="Leave it out",
        upstream="#32105",
    ),
    Rule(
        name="grpc",
        flags=("--grpc-mode",),
        reason="flips and readings go over SGLang's HTTP endpoints",
        remedy="Leave it out",
        upstream="arg_groups/fields/serving.py",
    ),
    Rule(
        name="hierarchical-cache",
        flags=("--enable-hierarchical-cache",),
        warns=True,
        reason="reloaded prefixes come back without the draft's cache, so acceptance drops after a reload",
        remedy="Compare acceptance with and without it",
        upstream="#16964, #21125",
    ),
)


def broken_rules(arguments: Sequence[str], boot: Mode, backend: str) -> list[Broken]:
    """Every rule that these launch arguments break. backend: the server's attention backend."""
    given = list(flags_of(arguments))
    found = []
    for rule in RULES:
        if (rule.tree_only and not boot.is_tree) or backend in rule.unless_backend:
            continue
        for token, value in given:
            if any(means(token, flag) for flag in rule.flags) and _applies(rule, value):
                found.append(Broken(rule=rule, argument=f"{token} {value}" if rule.values or rule.above else token))
                break
    return found


def _applies(rule: Rule, value: str) -> bool:
    if rule.values:
        return value in rule.values
    if rule.above is not None:
        return not value.isdecimal() or int(value) > rule.above
    return True
