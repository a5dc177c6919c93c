"""Tokens and metadata of a speculative round.

Reference: sglang's Triton kernels `fill_bonus_tokens`, `fill_accept_out_cache_loc` (kernels/ops/speculative/eagle.py),
`rotate_input_ids_kernel` (multi_layer_eagle.py) and, for the draft's decode metadata,
`generate_draft_decode_kv_indices` (cache_locs.py), all with page size 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specctl_engine.cpu.plan import padded_length


def fill_bonus_tokens_cpu(accept_tokens: Tensor, accept_lens: Tensor, bonus_tokens: Tensor, accept_stride: int) -> None:
    """Write each request's last accepted token to `bonus_tokens` [bs].

    Args:
        accept_tokens: [bs * accept_stride], each request's accepted tokens first in its `accept_stride` places.
        accept_lens: [bs], how many were accepted, the bonus token included (>= 1).
        bonus_tokens: written.
        accept_stride: places a request has.
    """
    rows = accept_tokens.view(-1, accept_stride)
    last = (accept_lens.to(torch.int64) - 1).unsqueeze(1)
    bonus_tokens.copy_(rows.gather(1, last).squeeze(1))


def fill_accept_out_cache_loc_cpu(accept_index: Tensor, out_cache_loc: Tensor, accept_out_cache_loc: Tensor) -> None:
    """Pack the slots `out_cache_loc[i]` of the accepted i (entries of `accept_index` that are not -1), in order.

    `accept_out_cache_loc` keeps what it held behind the packed part.
    """
    index = accept_index.flatten()
    accepted = index.masked_select(index > -1).to(torch.int64)
    accept_out_cache_loc[: accepted.numel()] = out_cache_loc.index_select(0, accepted)


def rotate_input_ids_cpu(
    input_ids: Tensor,
    extend_start_loc: Tensor,
    extend_seq_lens: Tensor,
    topk_index: Tensor,
    select_index: Tensor | None = None,
) -> None:
    """Shift every request's part of `input_ids` [tokens] left by one, in place, and put its new token at the end.

    Args:
        input_ids: changed in place.
        extend_start_loc: [bs], where each request's part starts.
        extend_seq_lens: [bs], its length; a request of length 0 is left alone.
        topk_index: [bs] or [bs, 1], the new tokens.
        select_index: [bs], where to put them instead of the end of each part.
    """
    lengths = extend_seq_lens.tolist()
    tokens = topk_index.flatten()
    places = extend_start_loc + extend_seq_lens - 1 if select_index is None else select_index
    for start, length in zip(extend_start_loc.tolist(), lengths, strict=True):
        if length > 1:
            input_ids[start : start + length - 1] = input_ids[start + 1 : start + length].clone()
    if min(lengths, default=1) < 1:
        filled = extend_seq_lens > 0
        places, tokens = places[filled], tokens[filled]
    input_ids.index_copy_(0, places.to(torch.int64), tokens.to(input_ids.dtype))


def build_draft_decode_metadata_cpu(
    req_to_token: Tensor, req_pool_indices: Tensor, seq_lens: Tensor, topk: int, num_steps: int, pool_len: int
) -> Tensor:
    """A slot table with one row a draft branch, in the order (request, branch).

    Branch k of a request sees the request's prefix, then its own slots, which lie at positions
    [seq_len + k * num_steps, seq_len + (k + 1) * num_steps) of the request's row and at [seq_len, seq_len + num_steps)
    of the new one.

    Args:
        req_to_token: [pool, pool_len] int32.
        req_pool_indices: [bs], rows of the batch.
        seq_lens: [bs], committed lengths.
        topk: branches a request.
        num_steps: slots a branch.
        pool_len: width of `req_to_token`.

    Returns:
        [bs * topk, width] int32. `width` is the longest row as attention pads it, pool_len at most: a table of whole
        rows would be megabytes a round. What lies behind a branch's slots is unspecified.
    """
    lengths = seq_lens.tolist()
    width = min(pool_len, padded_length(max(lengths, default=0) + num_steps))
    table = req_to_token.new_empty((len(lengths), topk, width))
    for branches, row, seq_len in zip(table, req_pool_indices.tolist(), lengths, strict=True):
        branches[:, :seq_len] = req_to_token[row, :seq_len]
        own = req_to_token[row, seq_len : seq_len + topk * num_steps]
        branches[:, seq_len : seq_len + num_steps] = own.view(topk, num_steps)
    return table.view(-1, width)
