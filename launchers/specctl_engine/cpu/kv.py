"""Operators on slots of the KV cache.

Reference: sglang's Triton kernels `assign_req_to_token_pool` (srt/mem_cache/allocation.py), `assign_extend_cache_locs`
and `assign_draft_cache_locs_contiguous` (kernels/ops/speculative/cache_locs.py), `copy_all_layer_kv_cache_tiled`
(kernels/ops/kvcache/cache_move.py). Names: `req_to_token` [pool, pool_len] int32 holds the slot of every position of
every request; `req_pool_indices` [bs] int64 are the batch's rows in it. Page size is 1.

Ranges of requests are copied as slices, one a request: at batch 1 to 16 that is faster than building index tensors for
all tokens at once, and no token is ever touched by Python.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

import torch
from torch import Tensor


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor, req_to_token: Tensor, start: Tensor, end: Tensor, out_cache_loc: Tensor, pool_len: int
) -> None:
    """Write the packed slots `out_cache_loc` [sum(end - start)] to positions [start, end) of each request's row."""
    offset = 0
    for row, first, last in zip(req_pool_indices.tolist(), start.tolist(), end.tolist(), strict=True):
        if last > first:
            req_to_token[row, first:last] = out_cache_loc[offset : offset + last - first]
            offset += last - first


def assign_extend_cache_locs_cpu(
    req_pool_indices: Tensor, req_to_token: Tensor, start: Tensor, end: Tensor, out_cache_loc: Tensor, pool_len: int
) -> None:
    """Read the slots of positions [start, end) of each request into `out_cache_loc` [>= sum(end - start)], packed."""
    offset = 0
    for row, first, last in zip(req_pool_indices.tolist(), start.tolist(), end.tolist(), strict=True):
        if last > first:
            out_cache_loc[offset : offset + last - first] = req_to_token[row, first:last]
            offset += last - first


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    seq_lens: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Read the `topk * num_steps` slots behind each sequence into `out_cache_loc` [bs * topk * num_steps]."""
    count = topk * num_steps
    out = out_cache_loc.view(-1, count)
    for index, (row, first) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)):
        out[index] = req_to_token[row, first : first + count]


def copy_all_layer_kv_cache_cpu(data_ptrs: Tensor, strides: Tensor, tgt_loc: Tensor, src_loc: Tensor) -> None:
    """Copy slots `src_loc` to `tgt_loc`, int64 [n], in every buffer; all sources are read before a target is written.

    Args:
        data_ptrs: uint64 [buffers], address of slot 0 of each buffer.
        strides: int64 [buffers], bytes from one slot to the next, which is also what a slot holds.
        tgt_loc: slots written. Where one occurs twice the sources must agree.
        src_loc: slots read.
    """
    # A round that accepted the tree's first branch moves nothing, and padding moves slot 0 onto itself.
    moved = (tgt_loc != src_loc).nonzero().flatten()
    if moved.numel() == 0:
        return
    target, source = tgt_loc.index_select(0, moved).long(), src_loc.index_select(0, moved).long()
    slots = 1 << int(torch.maximum(target.max(), source.max())).bit_length()
    for address, stride in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        buffer = _slots_at(address, slots, stride)
        buffer.index_copy_(0, target, buffer.index_select(0, source))


# Making a view costs more than the copy. A view of a buffer that has gone is harmless: nothing reads through it.
@lru_cache(maxsize=1024)
def _slots_at(address: int, slots: int, stride: int) -> Tensor:
    """Memory at `address` as a tensor [slots, stride / itemsize], in the widest integers that divide a slot.

    It may reach behind the buffer; nothing there is touched.
    """
    dtype, size = (torch.int64, 8) if (stride | address) % 8 == 0 else (torch.uint8, 1)
    memory = (ctypes.c_byte * (slots * stride)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).view(slots, stride // size)
