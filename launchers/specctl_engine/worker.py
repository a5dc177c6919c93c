"""EAGLEWorkerV2 with a mode that can be changed at the top of a decode round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sglang.srt.runtime_context import get_parallel, get_spec
from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2

from specctl_engine import status
from specctl_engine.control import FlipControl
from specctl_engine.counters import Counters
from specctl_engine.draft import FlipDraftWorker
from specctl_engine.modes import EngineMode, resolve
from specctl_engine.states import ModeState, apply_state, build_states


class FlipWorker(EAGLEWorkerV2):
    """Boots as SGLang would at the largest mode, builds the other modes' states, and flips among them."""

    is_specctl_worker = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        spec, parallel = get_spec(), get_parallel()
        modes, boot = resolve(
            spec.speculative_num_steps, spec.speculative_eagle_topk, spec.speculative_num_draft_tokens
        )
        FlipDraftWorker.adopt(self._draft_worker, self)
        self._tp_rank, self._tp_size = int(parallel.tp_rank), int(parallel.tp_size)
        self._dp_rank = int(parallel.dp_rank or 0)
        self._control = FlipControl(modes, boot)
        self._counters = Counters(modes, self._tp_rank, self._dp_rank)
        self._states: dict[int, ModeState] = {}

    def init_cuda_graphs(self) -> None:
        super().init_cuda_graphs()
        control = self._control
        self._states = build_states(self, control.modes, control.boot)
        self._counters.live(control.active, control.active_epoch)
        status.active(self._tp_rank, self._dp_rank)

    # ------------------------------------------------------------------ rounds

    def forward_batch_generation(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        if batch.forward_mode.is_extend() or batch.is_extend_in_batch:
            self._counters.interrupted()
            return super().forward_batch_generation(batch, *args, **kwargs)
        self._flip_if_due()
        mode = self._control.active
        self._counters.round_starts(mode, len(batch.reqs))
        result = super().forward_batch_generation(batch, *args, **kwargs)
        # The live mode may have moved on by the time this round's result is read.
        result.specctl_mode = mode
        return result

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

    def report(self) -> dict[str, Any]:
        states = {s.mode.name: {"seconds": s.seconds, "bytes": s.bytes} for s in self._states.values()}
        return self._control.report() | {
            "rank": self._tp_rank,
            "tp_size": self._tp_size,
            "dp_rank": self._dp_rank,
            "modes": states,
            "by_mode": self._counters.report(),
        }
