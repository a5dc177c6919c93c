"""What a running server may not combine with flips: one row a rule, read inside the engine before its worker is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from specctl_engine import signatures
from specctl_engine.modes import ModeError, resolve


class Rule(NamedTuple):
    """`broken` gets the runtime configuration; `reference` is the upstream report or source that makes the rule needed."""

    name: str
    broken: Callable[[Any], bool]
    reason: str
    reference: str


class Config(NamedTuple):
    """The published configuration bags of SGLang that the rules read."""

    spec: Any
    parallel: Any
    schedule: Any
    args: Any


def _arg(config: Config, name: str) -> Any:
    return getattr(config.args, name, None)


RULES: tuple[Rule, ...] = (
    Rule(
        "adaptive",
        lambda c: bool(c.spec.speculative_adaptive),
        "--speculative-adaptive changes the same state by itself; leave it out",
        "speculative/adaptive_spec_params.py",
    ),
    Rule(
        "rejection-sampling",
        lambda c: bool(c.spec.speculative_use_rejection_sampling),
        "--speculative-use-rejection-sampling supports topk 1 only; leave it out",
        "speculative/eagle_worker_v2.py",
    ),
    Rule(
        "attention-dp",
        lambda c: bool(_arg(c, "enable_dp_attention")),
        "attention data parallelism pads every rank to one common width, which a flip would change on one rank first",
        "sgl-project/sglang#35898",
    ),
    Rule(
        "pipeline",
        lambda c: int(c.parallel.pp_size) > 1,
        "pipeline parallelism drafts the next round ahead; use --tp instead of --pp",
        "speculative/eagle_worker_v2.py",
    ),
    Rule(
        "disaggregation",
        lambda c: _arg(c, "disaggregation_mode") not in (None, "null"),
        "prefill/decode disaggregation ships draft state of a fixed width between servers",
        "sgl-project/sglang#14368",
    ),
    Rule(
        "mixed-chunk",
        lambda c: bool(_arg(c, "enable_mixed_chunk")),
        "a mixed prefill step would decode rows whose draft KV is not written yet; leave --enable-mixed-chunk out",
        "managers/schedule_batch.py",
    ),
    Rule(
        "two-batch-overlap",
        lambda c: bool(_arg(c, "enable_two_batch_overlap")),
        "two-batch overlap splits a round; leave --enable-two-batch-overlap out",
        "speculative/adaptive_spec_params.py",
    ),
    Rule(
        "pdmux",
        lambda c: bool(_arg(c, "enable_pdmux")),
        "--enable-pdmux runs prefill and decode at once; leave it out",
        "speculative/adaptive_spec_params.py",
    ),
)


def _config() -> Config:
    from sglang.srt.runtime_context import get_parallel, get_schedule, get_server_args, get_spec

    return Config(get_spec(), get_parallel(), get_schedule(), get_server_args())


def worker_problem(worker_class: Any) -> str | None:
    """Why this server's drafting worker cannot be replaced by ours, or None."""
    name = getattr(worker_class, "__name__", str(worker_class))
    if name != "EAGLEWorkerV2":
        return f"the server drafts with {name}; flips need EAGLE or EAGLE3 (EAGLEWorkerV2)"
    why = signatures.worker_problem()
    if why is not None:
        return why
    config = _config()
    for rule in RULES:
        if rule.broken(config):
            return f"{rule.name}: {rule.reason} ({rule.reference})"
    spec = config.spec
    try:
        resolve(spec.speculative_num_steps, spec.speculative_eagle_topk, spec.speculative_num_draft_tokens)
    except ModeError as error:
        return str(error)
    return None
