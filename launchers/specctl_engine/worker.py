"""EAGLEWorkerV2 with a mode that can be changed at the top of a decode round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sglang.srt.runtime_context import get_parallel, get_spec
from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2

from specctl_engine import live, status
from specctl_engine.control import FlipControl
from specctl_engine.counters import Counters
from specctl_engine.draft import FlipDraftWorker
from specctl_engine.modes import EngineMode, resolve
from specctl_engine.off import OffRounds
from specctl_engine.states import ModeState, apply_state, build_states


class FlipWorker(EAGLEWorkerV2):
    """Boots as SGLang would at the largest mode, builds the other modes' states, and flips among them."""

    is_specctl_worker = True
    topk: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        live.worker = self
        spec, parallel = get_spec(), get_parallel()
        modes, boot = resolve(
            spec.speculative_num_steps, spec.speculative_eagle_topk, spec.speculative_num_draft_tokens
        )
        FlipDraftWorker.adopt(self._draft_worker)
        self._tp_rank, self._tp_size = int(parallel.tp_rank), int(parallel.tp_size)
        self._dp_rank = int(parallel.dp_rank or 0)
        self._control = FlipControl(modes, boot)
        self._counters = Counters(modes, self._tp_rank, self._dp_rank)
        self._states: dict[int, ModeState] = {}
        self._off: OffRounds | None = None

    def init_cuda_graphs(self) -> None:
        super().init_cuda_graphs()
        control = self._control
        self._states = build_states(self, control.modes, control.boot)
        if any(state.plain for state in self._states.values()):
            self._off = OffRounds(self, self._states[control.boot.id])
        self._counters.live(control.active, control.active_epoch)
        status.active(self._tp_rank, self._dp_rank)

    # ------------------------------------------------------------------ rounds

    def forward_batch_generation(
        self, batch: Any, on_publish: Any = None, grammar_barrier: Any = None, pp_proxy_tensors: Any = None
    ) -> Any:
        if batch.forward_mode.is_extend() or batch.is_extend_in_batch:
            self._counters.interrupted()
            if self._off is not None:
                self._off.last_reader = None
                self._off.pending.forget(batch.req_pool_indices_cpu, batch.req_pool_indices)
            return super().forward_batch_generation(batch, on_publish, grammar_barrier, pp_proxy_tensors)
        self._flip_if_due()
        mode = self._control.active
        self._counters.round_starts(mode, len(batch.reqs))
        if self._off is not None and self._states[mode.id].plain:
            result = self._off.round(batch, on_publish, grammar_barrier)
        else:
            if self._off is not None:
                self._off.settle_before_drafting(batch)
            result = super().forward_batch_generation(batch, on_publish, grammar_barrier, pp_proxy_tensors)
        # The live mode may have moved on by the time this round's result is read.
        result.specctl_mode = mode
        return result

    @property
    def last_shared_read_runner(self) -> Any:
        off = self._off
        return super().last_shared_read_runner if off is None or off.last_reader is None else off.last_reader

    def _stub_skipped_draft_extend(self, batch: Any, batch_output: Any) -> None:
        # Upstream would hand over stubs as narrow as the mode; see FlipDraftWorker.
        topk, self.topk = self.topk, self._draft_worker.relay_topk
        try:
            super()._stub_skipped_draft_extend(batch, batch_output)
        finally:
            self.topk = topk

    def activate_step_by_batch(self, batch_size: int) -> None:
        """Upstream calls this inside a round. The flip was taken at its top, and nothing else chooses."""

    def _flip_if_due(self) -> None:
        to = self._control.due()
        if to is None:
            return
        before = self._control.active
        apply_state(self, self._states[to.id])
        self._control.applied()
        self._counters.interrupted()
        self._counters.flipped(before, to, self._control.cause)
        self._counters.live(to, self._control.active_epoch)

    # ------------------------------------------------------------------ what the hooks call

    def command(self, request: Mapping[str, Any]) -> bool:
        taken = self._control.command(request)
        self._counters.epoch(self._control.active_epoch)
        return taken

    def count(self, result: Any, accepted: Sequence[Sequence[int]], batch: Any) -> None:
        mode: EngineMode = result.specctl_mode
        # A request that ended in the round before still has a row here under overlap scheduling; nobody gets its tokens.
        rows = [
            len(tokens)
            for tokens, req in zip(accepted, batch.reqs, strict=True)
            if not (req.is_retracted or req.finished())
        ]
        self._counters.committed(mode, rows)

    def reusable_kv_len(self, req: Any, owned: int) -> int:
        """How much of a request's KV may be kept for others: not the positions that the draft has yet to write.

        A later request on a kept prefix would draft from whatever lies in those slots, without an error.
        """
        if self._off is None or not self._off.pending.rounds:
            return owned
        written = req.kv.kv_committed_len - self._off.pending.of_row(req.kv.req_pool_idx)
        return min(owned, max(written, req.kv.cache_protected_len))

    def report(self) -> dict[str, Any]:
        states = {s.mode.name: {"seconds": s.seconds, "bytes": s.bytes, "note": s.note} for s in self._states.values()}
        return self._control.report() | {
            "rank": self._tp_rank,
            "tp_size": self._tp_size,
            "dp_rank": self._dp_rank,
            "modes": states,
            "pending_bytes": 0 if self._off is None else self._off.pending.bytes,
            "by_mode": self._counters.report(),
        }
