"""The draft worker of a server that is flipped: `topk` follows the mode, what it hands to the next round never narrows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker


class FlipDraftWorker(EagleDraftWorker):
    """An EagleDraftWorker that was made at the boot mode; `relay_topk` is that mode's topk.

    The relay between rounds is allocated once, as wide as the boot mode's topk. A narrower hand-over would be broadcast into
    it without an error: text stays right, and the first round of the tree accepts less. So draft-extend always emits
    `relay_topk` candidates and a narrower mode reads the first columns.
    """

    relay_topk: int
    topk: int

    @classmethod
    def adopt(cls, worker: EagleDraftWorker) -> None:
        """Turn the draft worker that EAGLEWorkerV2 made into one of this class, in place."""
        worker.__class__ = cls
        worker.relay_topk = worker.topk

    def _rebuild_topk1_chain_buffers(self) -> None:
        # Upstream asserts tokens == steps + 1 for topk 1 and calls this while a state is half restored.
        if self.speculative_num_draft_tokens == self.speculative_num_steps + 1:
            super()._rebuild_topk1_chain_buffers()

    @contextlib.contextmanager
    def relay_width(self) -> Iterator[None]:
        topk, self.topk = self.topk, self.relay_topk
        try:
            yield
        finally:
            self.topk = topk

    def draft(self, batch: Any, **kwargs: Any) -> Any:
        spec = batch.spec_info
        if spec.topk_p is not None and spec.topk_p.shape[1] > self.topk:
            spec.topk_p = spec.topk_p[:, : self.topk].contiguous()
            spec.topk_index = spec.topk_index[:, : self.topk].contiguous()
        return super().draft(batch, **kwargs)

    def _draft_extend_for_prefill(self, *args: Any, **kwargs: Any) -> Any:
        with self.relay_width():
            return super()._draft_extend_for_prefill(*args, **kwargs)

    def _draft_extend_for_decode(self, *args: Any, **kwargs: Any) -> Any:
        with self.relay_width():
            return super()._draft_extend_for_decode(*args, **kwargs)
