"""Everything of a worker that depends on the mode, built once a mode and swapped as a whole."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sglang.srt.layers.moe.utils import speculative_moe_a2a_backend_context, speculative_moe_backend_context
from sglang.srt.model_executor.cuda_graph_config import Backend, Phase, check_cuda_graph_backend
from sglang.srt.runtime_context import get_context, get_exec, get_spec
from sglang.srt.speculative.adaptive_runtime_state import SpecRuntimeState
from sglang.srt.speculative.spec_utils import draft_tp_context
from sglang.srt.utils.common import get_available_gpu_memory

from specctl_engine.modes import EngineMode


@dataclass(frozen=True, slots=True)
class ModeState:
    """Upstream's runtime state with the mode it was built for, and what building it cost."""

    mode: EngineMode
    runtime: Any
    seconds: float
    bytes: int


@contextlib.contextmanager
def draft_contexts(worker: Any) -> Iterator[None]:
    """What upstream wraps around every use of the draft model."""
    layout = worker.draft_worker.parallel_layout
    with draft_tp_context(layout), speculative_moe_backend_context(), speculative_moe_a2a_backend_context():
        yield


def build_states(worker: Any, modes: Sequence[EngineMode], boot: EngineMode) -> dict[int, ModeState]:
    """States of all modes by mode id. Call after the boot mode's own graphs exist; the worker stays at the boot mode."""
    states = {boot.id: ModeState(boot, _current(worker), 0.0, 0)}
    with draft_contexts(worker):
        for mode in modes:
            if mode is not boot:
                states[mode.id] = _build(worker, mode)
    return states


def _current(worker: Any) -> Any:
    draft, runner = worker.draft_worker, worker.target_worker.model_runner
    return SpecRuntimeState(
        speculative_num_steps=worker.speculative_num_steps,
        speculative_num_draft_tokens=worker.speculative_num_draft_tokens,
        draft_attn_backend=draft.draft_attn_backend,
        cuda_graph_runner=draft.cuda_graph_runner,
        target_attn_backend=runner.attn_backend,
        target_graph_runner=runner.decode_cuda_graph_runner,
        draft_extend_attn_backend=draft.draft_extend_attn_backend,
        cuda_graph_runner_for_draft_extend=draft.cuda_graph_runner_for_draft_extend,
    )


def _build(worker: Any, mode: EngineMode) -> ModeState:
    draft = worker.draft_worker
    graphs = not check_cuda_graph_backend(Phase.DECODE, Backend.DISABLED)
    sizes = get_exec().graph.cuda_graph_bs_decode if graphs else None
    before, started = get_available_gpu_memory(worker.device, worker.gpu_id), time.perf_counter()
    topk, spec_topk = worker.topk, get_spec().speculative_eagle_topk
    # Attention backends and graph runners read topk where they are made, so it has to be the mode's for that time.
    worker.topk = draft.topk = mode.topk
    get_context().override("specctl.build", speculative_eagle_topk=mode.topk)
    try:
        runtime = worker.build_adaptive_runtime_state(mode.steps, mode.tokens, cuda_graph_bs=sizes)
    finally:
        worker.topk = draft.topk = topk
        get_context().override("specctl.build", speculative_eagle_topk=spec_topk)
    freed = before - get_available_gpu_memory(worker.device, worker.gpu_id)
    used = max(0, round(freed * 2**30)) if worker.device != "cpu" else 0
    return ModeState(mode, runtime, round(time.perf_counter() - started, 3), used)


def apply_state(worker: Any, state: ModeState) -> None:
    """Put the worker into `state`'s mode. Pool sizes, KV reserve and relay width stay those of the boot mode.

    Upstream's own `apply_runtime_state` returns early when the number of steps is equal, which tree and chain share, and
    it publishes the new numbers, from which the KV reserve is computed.
    """
    mode, runtime = state.mode, state.runtime
    draft, runner = worker.draft_worker, worker.target_worker.model_runner
    for part in (worker, draft):
        part.topk = mode.topk
        part.speculative_num_steps = mode.steps
        part.speculative_num_draft_tokens = mode.tokens
    draft.draft_attn_backend = draft.draft_runner.draft_attn_backend = runtime.draft_attn_backend
    draft.cuda_graph_runner = runtime.cuda_graph_runner
    draft.draft_extend_attn_backend = runtime.draft_extend_attn_backend
    if runtime.draft_extend_attn_backend is not None:
        draft.draft_runner.attn_backend = runtime.draft_extend_attn_backend
    draft.cuda_graph_runner_for_draft_extend = runtime.cuda_graph_runner_for_draft_extend
    draft._rebuild_topk1_chain_buffers()
    runner.attn_backend = runtime.target_attn_backend
    runner.decode_cuda_graph_runner = runtime.target_graph_runner
