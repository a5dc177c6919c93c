"""Rounds without speculation on a server that has a draft model: plain decodes, with the draft kept able to resume.

Upstream's way of being off is a verify forward of one node and a draft-extend in every round. Here a round is a decode
forward that also returns the hidden states, and the draft catches up for many positions at once: when its queue is full,
and at the top of the first round of a mode that drafts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from sglang.kernels.ops.speculative.cache_locs import assign_extend_cache_locs_uniform_func
from sglang.srt.layers.logprob_processor import compute_spec_logprobs
from sglang.srt.managers.scheduler import GenerationBatchResult
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.speculative.eagle_info import EagleDraftInput
from sglang.srt.speculative.eagle_utils import get_draft_input_from_target_hidden_dim

from specctl_engine.pending import PendingPositions
from specctl_engine.states import ModeState, draft_contexts

# What a forward changes on a batch and the scheduler expects unchanged.
_BATCH_FIELDS = (
    "seq_lens", "seq_lens_cpu", "seq_lens_sum", "forward_mode", "spec_info", "input_ids", "out_cache_loc",
    "prefix_lens", "extend_lens", "extend_num_tokens",
)  # fmt: skip


class OffRounds:
    """Runs off rounds of one worker and settles what they leave pending.

    last_reader: the model runner that reads the shared buffers last in the present round, whose event the scheduler waits
    for before it writes there; None = the draft's, as upstream has it.
    """

    def __init__(self, worker: Any, boot: ModeState) -> None:
        runner = worker.draft_worker.draft_runner
        self._worker = worker
        self._boot = boot
        self.last_reader: Any = None
        self.pending = PendingPositions(
            rows=worker.req_to_token_pool.req_to_token.shape[0],
            width=boot.mode.tokens,
            hidden=get_draft_input_from_target_hidden_dim(runner),
            dtype=runner.model_config.dtype,
            device=worker.device,
        )

    def round(self, batch: Any, on_publish: Callable[[Any], None] | None, grammar_barrier: Any) -> Any:
        """One plain decode of `batch`. The result has the shape of a verify that accepted the bonus token alone."""
        target = self._worker.target_worker.model_runner
        # A verify round may have left its event here unread; the scheduler would take it for this round's.
        target.shared_read_done_event = None
        self.last_reader = target
        result = self._decode(batch, batch.spec_info, grammar_barrier)
        if on_publish is not None:
            on_publish(result.new_seq_lens)
        hidden = result.logits_output.hidden_states
        self.pending.push(batch.req_pool_indices_cpu, batch.req_pool_indices, result.next_token_ids, hidden)
        self._worker._stub_skipped_draft_extend(batch, result)
        if self.pending.is_full:
            lens_host = None if batch.seq_lens_cpu is None else batch.seq_lens_cpu + 1
            self._settle(batch, result.new_seq_lens, lens_host, result.next_draft_input)
        return result

    def settle_before_drafting(self, batch: Any) -> None:
        """Called at the top of every round that drafts: free unless the rounds before it were off."""
        self.last_reader = None
        if self.pending.rounds:
            self._settle(batch, batch.seq_lens, batch.seq_lens_cpu, batch.spec_info)

    # ------------------------------------------------------------------ the decode

    def _decode(self, batch: Any, draft_input: Any, grammar_barrier: Any) -> Any:
        worker, runner = self._worker, self._worker.target_worker.model_runner
        lens, lens_host, rows = batch.seq_lens, batch.seq_lens_cpu, batch.req_pool_indices
        batch.forward_mode, batch.spec_info = ForwardMode.DECODE, None
        batch.input_ids = draft_input.bonus_tokens.to(torch.int64)
        # The slot was reserved with the boot mode's width before this round; nothing is allocated here.
        batch.out_cache_loc = worker.req_to_token_pool.req_to_token[rows, lens].to(torch.int64)
        batch.seq_lens = lens + 1
        batch.seq_lens_cpu = None if lens_host is None else lens_host + 1
        batch.seq_lens_sum = None
        forward = ForwardBatch.init_new(
            batch, runner, capture_hidden_mode=CaptureHiddenMode.FULL, return_hidden_states_before_norm=False
        )
        output = runner.forward(forward)
        logits = output.logits_output
        if batch.has_grammar and grammar_barrier is not None:
            # Under overlap scheduling the round before must have reached the grammar first.
            grammar_barrier()
        # Sampling would leave flat logprobs; the speculative path wants one row a request.
        forward.return_logprob = False
        tokens = runner.sample(logits, forward).to(torch.int32)
        batch.seq_lens, batch.seq_lens_cpu = lens, lens_host
        index = torch.arange(len(lens), dtype=torch.int32, device=worker.device).unsqueeze(1)
        if batch.return_logprob:
            compute_spec_logprobs(batch, logits, tokens, accept_index=index)
        return GenerationBatchResult(
            logits_output=logits,
            next_token_ids=tokens,
            can_run_cuda_graph=output.can_run_graph,
            speculative_num_draft_tokens=1,
            next_draft_input=EagleDraftInput(bonus_tokens=tokens),
            accept_lens=torch.ones_like(lens, dtype=torch.int32),
            new_seq_lens=lens + 1,
            accept_index=index,
            extra_keep_alive_refs=[forward],
        )

    # ------------------------------------------------------------------ the catch-up

    def _settle(self, batch: Any, lens: Any, lens_host: Any, draft_input: Any) -> None:
        """Write the draft KV of every pending position in one draft-extend, and refresh `draft_input` from its end.

        lens, lens_host: [n] committed lengths of the rows, the pending positions included.
        """
        worker, draft, width = self._worker, self._worker.draft_worker, self.pending.width
        self.last_reader = None
        rows = batch.req_pool_indices
        counts_host, counts, tokens, hidden = self.pending.take(batch.req_pool_indices_cpu, rows)
        fresh = EagleDraftInput()
        extend = SimpleNamespace(
            prepared_draft_extend_inputs=None,
            accept_lens=counts.clamp(min=1).to(torch.int32),
            next_token_ids=tokens,
            logits_output=SimpleNamespace(hidden_states=hidden),
            next_draft_input=fresh,
            new_seq_lens=lens,
        )
        with self._at_boot_width(batch):
            batch.seq_lens = lens - counts
            batch.seq_lens_cpu = None if lens_host is None else lens_host - counts_host
            batch.seq_lens_sum = None if lens_host is None else int(batch.seq_lens_cpu.sum())
            batch.forward_mode = ForwardMode.TARGET_VERIFY
            batch.out_cache_loc = assign_extend_cache_locs_uniform_func(
                req_pool_indices=rows,
                req_to_token=worker.req_to_token_pool.req_to_token,
                start_offset=batch.seq_lens,
                batch_size=len(counts_host),
                draft_token_num=width,
                device=worker.device,
            )
            with draft_contexts(worker):
                draft._draft_extend_for_decode(batch, extend)
        settled = (counts > 0).unsqueeze(1)
        for name in ("topk_p", "topk_index", "hidden_states"):
            new, old = getattr(fresh, name), getattr(draft_input, name)
            setattr(draft_input, name, torch.where(settled, new, old.to(new.dtype)))

    @contextmanager
    def _at_boot_width(self, batch: Any) -> Iterator[None]:
        """The draft worker at the boot mode's draft-extend, and afterwards the worker and the batch as they were."""
        draft, boot = self._worker.draft_worker, self._boot
        saved = {name: getattr(batch, name) for name in _BATCH_FIELDS}
        before = (
            draft.speculative_num_draft_tokens,
            draft.draft_runner.attn_backend,
            draft.cuda_graph_runner_for_draft_extend,
        )
        draft.speculative_num_draft_tokens = boot.mode.tokens
        if boot.runtime.draft_extend_attn_backend is not None:
            draft.draft_runner.attn_backend = boot.runtime.draft_extend_attn_backend
        draft.cuda_graph_runner_for_draft_extend = boot.runtime.cuda_graph_runner_for_draft_extend
        try:
            yield
        finally:
            (
                draft.speculative_num_draft_tokens,
                draft.draft_runner.attn_backend,
                draft.cuda_graph_runner_for_draft_extend,
            ) = before
            for name, value in saved.items():
                setattr(batch, name, value)
