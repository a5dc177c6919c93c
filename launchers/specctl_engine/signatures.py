"""The SGLang signatures that the patch relies on, per supported version, and the check of them at load.

A parameter that upstream adds, drops or renames is a refusal that names the function, not a crash in mid-serving.
"""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import pkgutil
from collections.abc import Mapping

_INTERNAL = "sglang.srt.managers.scheduler_components.internal_state.SchedulerInternalStateController"
_EAGLE = "sglang.srt.speculative.eagle_worker_v2"

HOOKS: Mapping[str, tuple[str, ...]] = {
    "sglang.srt.plugins.hook_registry.HookRegistry.register": ("target", "hook", "hook_type", "source"),
    "sglang.srt.speculative.spec_info.SpeculativeAlgorithm.create_worker": ("self", "server_args"),
    f"{_INTERNAL}.set_internal_state": ("self", "recv_req"),
    f"{_INTERNAL}._add_speculative": ("self", "state"),
    "sglang.srt.managers.scheduler_components.batch_result_processor.SchedulerBatchResultProcessor"
    "._resolve_spec_v2_tokens": ("self", "result", "batch"),
    "sglang.srt.managers.schedule_batch.Req.owned_kv_len": ("self",),
}

WORKER: Mapping[str, tuple[str, ...]] = {
    f"{_EAGLE}.EAGLEWorkerV2.__init__": ("self", "server_args", "gpu_id", "nccl_port", "target_worker"),
    f"{_EAGLE}.EAGLEWorkerV2.init_cuda_graphs": ("self",),
    f"{_EAGLE}.EAGLEWorkerV2.forward_batch_generation": (
        "self", "batch", "on_publish", "grammar_barrier", "pp_proxy_tensors",
    ),
    f"{_EAGLE}.EAGLEWorkerV2.activate_step_by_batch": ("self", "batch_size"),
    f"{_EAGLE}.EAGLEWorkerV2.build_adaptive_runtime_state": (
        "self", "speculative_num_steps", "speculative_num_draft_tokens", "cuda_graph_bs",
    ),
    f"{_EAGLE}.EAGLEWorkerV2._stub_skipped_draft_extend": ("self", "batch", "batch_output"),
    f"{_EAGLE}.EagleDraftWorker.draft": ("self", "batch", "with_topology"),
    f"{_EAGLE}.EagleDraftWorker._draft_extend_for_prefill": (
        "self", "batch", "target_hidden_states", "next_token_ids", "mm_input_embeds", "kv_loc_plan",
    ),
    f"{_EAGLE}.EagleDraftWorker._draft_extend_for_decode": ("self", "batch", "batch_result", "kv_loc_plan"),
    f"{_EAGLE}.EagleDraftWorker._rebuild_topk1_chain_buffers": ("self",),
    "sglang.srt.speculative.adaptive_runtime_state.SpecRuntimeState.__init__": (
        "self", "speculative_num_steps", "speculative_num_draft_tokens", "draft_attn_backend", "cuda_graph_runner",
        "target_attn_backend", "target_graph_runner", "draft_extend_attn_backend", "cuda_graph_runner_for_draft_extend",
    ),
}  # fmt: skip

# The same tables hold for both; a release that moves one of them gets a table of its own here.
TESTED: Mapping[str, tuple[Mapping[str, tuple[str, ...]], Mapping[str, tuple[str, ...]]]] = {
    "0.5.22": (HOOKS, WORKER),
    "0.5.23": (HOOKS, WORKER),
}
FLOOR = (0, 5, 22)


@functools.cache
def sglang_version() -> str:
    try:
        return importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, "0.5.22.post1" -> (0, 5, 22)."""
    out: list[int] = []
    for part in version.split("."):
        if not part.isdigit():
            break
        out.append(int(part))
    return tuple(out)


def _tables() -> tuple[Mapping[str, tuple[str, ...]], Mapping[str, tuple[str, ...]]]:
    """The tables of this version; an untested newer one is held against the newest that was tested."""
    return TESTED.get(sglang_version()) or TESTED[max(TESTED, key=_numbers)]


def mismatch(table: Mapping[str, tuple[str, ...]]) -> str | None:
    """The first entry of `table` that this SGLang does not have with these parameters, in words; None = all hold."""
    for path, expected in table.items():
        try:
            found = tuple(inspect.signature(pkgutil.resolve_name(path)).parameters)
        except (AttributeError, ImportError, TypeError, ValueError) as error:
            return f"{path} cannot be read in SGLang {sglang_version()}: {error}"
        if found != expected:
            return f"{path} has parameters {found} in SGLang {sglang_version()}, not {expected}"
    return None


def hook_problem() -> str | None:
    """Why the hooks cannot be registered in this process, or None."""
    version = sglang_version()
    if _numbers(version) < FLOOR:
        floor = ".".join(map(str, FLOOR))
        return f"SGLang {version} is older than {floor}, the first that can be flipped while it serves"
    return mismatch(_tables()[0])


def worker_problem() -> str | None:
    """Why the drafting worker of this SGLang cannot be subclassed, or None. Imports it: scheduler processes only."""
    return mismatch(_tables()[1])
