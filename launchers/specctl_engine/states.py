"""Everything of a worker that depends on the mode, built once a mode and swapped as a whole."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sglang.srt.layers.moe.utils import speculative_moe_a2a_backend_context, speculative_moe_backend_context
from sglang.srt.model_executor.cuda_graph_config import Backend, Phase, check_cuda_graph_backend
from sglang.srt.runtime_context import get_context, get_exec, get_spec
from sglang.srt.speculative.adaptive_runtime_state import SpecRuntimeState
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_utils import draft_tp_context
from sglang.srt.utils.common import get_available_gpu_memory

from specctl_engine.modes import EngineMode

logger = logging.getLogger("specctl_engine")

_SPECULATION_FIELDS = (
    "speculative_algorithm",
    "speculative_eagle_topk",
    "speculative_num_steps",
    "speculative_num_draft_tokens",
)


@dataclass(frozen=True, slots=True)
class ModeState:
    """Upstream's runtime state with the mode it was built for, and what building it cost.

    plain: an off that decodes as without speculation. note: why it is not, in words for the read-back.
    """

    mode: EngineMode
    runtime: Any
    seconds: float = 0.0
    bytes: int = 0
    plain: bool = False
    note: str | None = None


@contextlib.contextmanager
def draft_contexts(worker: Any) -> Iterator[None]:
    """What upstream wraps around every use of the draft model."""
    layout = worker.draft_worker.parallel_layout
    with draft_tp_context(layout), speculative_moe_backend_context(), speculative_moe_a2a_backend_context():
        yield


def build_states(worker: Any, modes: Sequence[EngineMode], boot: EngineMode) -> dict[int, ModeState]:
    """States of all modes by mode id. Call after the boot mode's own graphs exist; the worker stays at the boot mode."""
    states = {boot.id: ModeState(boot, _current(worker))}
    with draft_contexts(worker):
        for mode in modes:
            if mode is not boot:
                states[mode.id] = _measured(worker, mode, states[boot.id].runtime)
    return states


def _measured(worker: Any, mode: EngineMode, boot: Any) -> ModeState:
    before, started = get_available_gpu_memory(worker.device, worker.gpu_id), time.perf_counter()
    runtime, note = None, None
    if mode.steps == 0:
        try:
            runtime = _build_off(worker, mode, boot)
        except Exception as error:  # whatever an attention backend lacks: upstream's way of being off still serves
            note = f"off runs as a one-node verify, because its decode state could not be built: {error!r}"
            logger.warning("specctl: %s", note, exc_info=True)
    plain = runtime is not None
    if runtime is None:
        runtime = _build(worker, mode)
    freed = before - get_available_gpu_memory(worker.device, worker.gpu_id)
    used = max(0, round(freed * 2**30)) if worker.device != "cpu" else 0
    seconds = round(time.perf_counter() - started, 3)
    logger.info("specctl: built %s in %.2f s, %.2f GiB", mode.name, seconds, used / 2**30)
    return ModeState(mode, runtime, seconds, used, plain, note)


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


def _build(worker: Any, mode: EngineMode) -> Any:
    draft = worker.draft_worker
    sizes = get_exec().graph.cuda_graph_bs_decode if _has_graphs() else None
    topk, spec_topk = worker.topk, get_spec().speculative_eagle_topk
    # Attention backends and graph runners read topk where they are made, so it has to be the mode's for that time.
    worker.topk = draft.topk = mode.topk
    get_context().override("specctl.build", speculative_eagle_topk=mode.topk)
    try:
        return worker.build_adaptive_runtime_state(mode.steps, mode.tokens, cuda_graph_bs=sizes)
    finally:
        worker.topk = draft.topk = topk
        get_context().override("specctl.build", speculative_eagle_topk=spec_topk)


def _build_off(worker: Any, mode: EngineMode, boot: Any) -> Any:
    """A target that decodes as on a server without speculation; the draft's parts stay the boot mode's, unused."""
    runner = worker.target_worker.model_runner
    with _as_without_speculation(runner):
        workspace = runner.init_new_workspace
        try:
            backend = runner._get_attention_backend(init_new_workspace=True)
        finally:
            runner.init_new_workspace = workspace
        graphs = runner._decode_cuda_graph_runner_cls()(runner, attn_backend=backend) if _has_graphs() else None
    return dataclasses.replace(
        boot,
        speculative_num_steps=mode.steps,
        speculative_num_draft_tokens=mode.tokens,
        target_attn_backend=backend,
        target_graph_runner=graphs,
    )


def _has_graphs() -> bool:
    return not check_cuda_graph_backend(Phase.DECODE, Backend.DISABLED)


@contextlib.contextmanager
def _as_without_speculation(runner: Any) -> Iterator[None]:
    """What a target's backend and graphs read while they are made, as a server without speculation would have it.

    Except for the hidden states: the draft needs them of every position, so the graphs return all.
    """
    algorithm, names = runner.spec_algorithm, _SPECULATION_FIELDS
    saved = {name: getattr(get_spec(), name) for name in names}
    hidden = get_exec().features.return_hidden_states_mode
    runner.spec_algorithm = SpeculativeAlgorithm.NONE
    get_context().override("specctl.off", **dict.fromkeys(names), return_hidden_states_mode="full")
    try:
        yield
    finally:
        runner.spec_algorithm = algorithm
        get_context().override("specctl.off", **saved, return_hidden_states_mode=hidden)


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
