"""Attention over the paged KV cache, registered as `torch.ops.sgl_kernel.{decode,extend}_attention_cpu`.

Reference: sglang's Triton decode and extend attention (kernels/ops/attention) as
sglang/srt/layers/attention/intel_amx_backend.py calls the compiled CPU operators. Page size is 1. Shapes: q and o
[tokens, heads, d]; KV buffers [slots, kv_heads, d]; `req_to_token` [pool, pool_len] int32.

A row's result depends on nothing but the row. Requests are batched only with requests whose keys are padded to the same
length, and that length is a function of the request's own length. So every row goes through matrix products of the
same shapes whatever else is in the batch, and greedy text does not change with the load. Padding every batch to its
longest row would be as fast, but would change last bits as requests come and go.

The query heads that share a KV head are folded into the query length: the fused kernel then needs no repeated keys, and
reads each key once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

# Longest extend that is batched with others. Beyond it a request's own work outweighs the calls that batching saves,
# and the mask, which folding repeats for every query head, would grow large.
_BATCHED_EXTEND = 64
_SHORTEST_PAD = 64


def padded_length(length: int) -> int:
    """Keys that a row of `length` keys is padded to: 64, 96, 128, 192, 256, 384 ... so at most half of them more."""
    if length <= _SHORTEST_PAD:
        return _SHORTEST_PAD
    power: int = 1 << (length - 1).bit_length()
    return power * 3 // 4 if length <= power * 3 // 4 else power


def decode_attention_cpu(
    q: Tensor,
    k_buf: Tensor,
    v_buf: Tensor,
    k_scale: float,
    v_scale: float,
    o: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    loc: Tensor,
    attn_logits: Tensor,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window_size: int,
    encoder_lens: Tensor | None,
    sinks: Tensor | None,
) -> None:
    """One query token a row over that row's `seq_lens` cached tokens; writes `o`.

    `k` and `v` [rows, kv_heads, d], where given, are stored at slots `loc` first. `sliding_window_size` counts the
    query's own token; 0 is none.

    Raises:
        NotImplementedError: see `_refuse`.
    """
    _refuse(k_buf, v_buf, k_scale, v_scale, is_cross_attn, sinks)
    if k is not None and v is not None:
        slots = loc.to(torch.int64)
        k_buf.index_copy_(0, slots, k.view(-1, *k_buf.shape[1:]).to(k_buf.dtype))
        v_buf.index_copy_(0, slots, v.view(-1, *v_buf.shape[1:]).to(v_buf.dtype))
    cache = _Cache(k_buf, v_buf, req_to_token, sm_scale, logit_cap)
    lengths = seq_lens.tolist()
    for pad, rows in _grouped(_clipped(lengths, sliding_window_size)):
        if pad == 0:
            o[rows] = 0
            continue
        whole = len(rows) == len(lengths)
        index = None if whole else torch.tensor(rows)
        queries, table_rows, ends = (_take(t, index) for t in (q, req_pool_indices, seq_lens))
        slots, valid = cache.slots(table_rows, ends, pad, sliding_window_size)
        result = cache.attend(queries.unsqueeze(1), slots, valid.unsqueeze(1)).squeeze(1)
        if index is None:
            o.copy_(result)
        else:
            o.index_copy_(0, index, result)


def extend_attention_cpu(
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    o: Tensor,
    k_buf: Tensor,
    v_buf: Tensor,
    k_scale: float,
    v_scale: float,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    extend_seq_lens: Tensor,
    extend_start_loc: Tensor,
    max_len_extend: int,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window_size: int,
    encoder_lens: Tensor | None,
    sinks: Tensor | None,
    tree_mask: Tensor | None,
    is_causal: bool,
) -> None:
    """The last `extend_seq_lens` tokens of every request over all its `seq_lens` tokens; writes `o`.

    Keys and values are read from the buffers alone: the backend has stored `k` and `v` there before it calls.
    `tree_mask`, bool [sum(n * n)] over the requests' extend lengths n, replaces the causal mask among the extended
    tokens; the prefix is visible to all of them.

    Raises:
        NotImplementedError: see `_refuse`; also a tree mask that is packed or spans the prefix, or that comes with a
            sliding window.
    """
    _refuse(k_buf, v_buf, k_scale, v_scale, is_cross_attn, sinks)
    ends, counts, starts = seq_lens.tolist(), extend_seq_lens.tolist(), extend_start_loc.tolist()
    if tree_mask is not None:
        _refuse_mask(tree_mask, counts, sliding_window_size)
    cache = _Cache(k_buf, v_buf, req_to_token, sm_scale, logit_cap)
    mask_starts = _running_sum([n * n for n in counts])
    batches: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row, (end, n) in enumerate(zip(ends, counts, strict=True)):
        if n == 0:
            continue
        if n <= _BATCHED_EXTEND:
            batches[n, padded_length(end)].append(row)
            continue
        tree = None if tree_mask is None else tree_mask[mask_starts[row] : mask_starts[row] + n * n].view(n, n).bool()
        part = slice(starts[row], starts[row] + n)
        o[part] = cache.attend_long(q[part], req_pool_indices[row], end, tree, is_causal, sliding_window_size)
    for (n, pad), rows in batches.items():
        index = torch.tensor(rows)
        tokens = _offsets([starts[row] for row in rows], n)
        slots, valid = cache.slots(req_pool_indices[index], seq_lens[index], pad, 0)
        if tree_mask is not None:
            trees = tree_mask.index_select(0, _offsets([mask_starts[row] for row in rows], n * n).flatten()).view(
                -1, n, n
            )
            visible = _tree_visible(trees, [ends[row] - n for row in rows], slots.shape[1])
        else:
            visible = _visible(seq_lens[index], n, slots.shape[1], is_causal, sliding_window_size, valid)
        queries = q.index_select(0, tokens.flatten()).view(len(rows), n, *q.shape[1:])
        o.index_copy_(0, tokens.flatten(), cache.attend(queries, slots, visible).flatten(0, 1))


class _Cache:
    """The KV cache of one layer and how its scores are made."""

    __slots__ = ("cap", "keys", "scale", "table", "values", "width")

    def __init__(self, keys: Tensor, values: Tensor, table: Tensor, scale: float, cap: float) -> None:
        self.keys, self.values, self.table = keys, values, table
        self.scale, self.cap, self.width = scale, cap, table.shape[1]

    def slots(self, rows: Tensor, ends: Tensor, pad: int, window: int) -> tuple[Tensor, Tensor]:
        """Slots of the last tokens before `ends` (all, or `window`), int64 [rows, pad], and which of them count.

        A place that does not count repeats the row's first slot: what stale entries point to may be another request's
        NaN, and NaN times the weight 0 is NaN.
        """
        offsets = torch.arange(min(pad, self.width), device=ends.device)
        if window > 0:
            begins = (ends - window).clamp(min=0).unsqueeze(1)
            valid = offsets < ends.unsqueeze(1) - begins
            places = torch.where(valid, begins + offsets, begins)
            return self.table[rows.unsqueeze(1), places].long(), valid
        valid = offsets < ends.unsqueeze(1)
        slots = self.table[rows, : offsets.shape[0]]
        return torch.where(valid, slots, slots[:, :1]).long(), valid

    def attend(self, q: Tensor, slots: Tensor, visible: Tensor) -> Tensor:
        """[rows, n, heads, d_v] from q [rows, n, heads, d], slots [rows, keys] and visible [rows, n, keys]."""
        rows, n, heads, dim = q.shape
        kv_heads = self.keys.shape[1]
        group = heads // kv_heads
        folded = q.view(rows, n, kv_heads, group, dim).permute(0, 2, 3, 1, 4).reshape(rows, kv_heads, group * n, dim)
        # index_select copies whole slots; indexing with the same tensor takes ten times as long.
        keys, values = (
            buffer.index_select(0, slots.flatten()).view(rows, -1, *buffer.shape[1:]).transpose(1, 2).to(q.dtype)
            for buffer in (self.keys, self.values)
        )
        mask = visible.unsqueeze(1)
        mask = mask.expand(-1, -1, group, -1) if n == 1 else mask.repeat(1, 1, group, 1)
        if self.cap <= 0:
            out = self._scored(folded, keys, values, mask, False)
        else:
            # Plain matrix products, unlike the fused kernel, round a row differently in another batch.
            parts = (tensor.split(1) for tensor in (folded, keys, values, mask))
            out = torch.cat([self._scored(a, b, c, m, False) for a, b, c, m in zip(*parts, strict=True)])
        return out.view(rows, kv_heads, group, n, -1).permute(0, 3, 1, 2, 4).reshape(rows, n, heads, -1)

    def attend_long(
        self, q: Tensor, row: Tensor, end: int, tree: Tensor | None, is_causal: bool, window: int
    ) -> Tensor:
        """[n, heads, d_v] of one request's many new tokens, q [n, heads, d]; keys are repeated by strides, not copied."""
        n, heads, _ = q.shape
        kv_heads = self.keys.shape[1]
        slots = self.table[row, :end].long()
        keys, values = (
            buffer.index_select(0, slots).transpose(0, 1).unsqueeze(1).expand(-1, heads // kv_heads, -1, -1).to(q.dtype)
            for buffer in (self.keys, self.values)
        )
        split = q.view(n, kv_heads, heads // kv_heads, -1).permute(1, 2, 0, 3)
        mask, causal = None, False
        if tree is not None:
            mask = torch.cat([tree.new_ones((n, end - n)), tree], dim=1)
        elif is_causal and end == n and window <= 0:
            causal = True
        elif is_causal:
            ends = torch.tensor([end])
            mask = _visible(ends, n, end, True, window, None)[0]
        out = self._scored(split, keys, values, mask, causal)
        return out.permute(2, 0, 1, 3).reshape(n, heads, -1)

    def _scored(self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """Softmax attention over the last two dimensions, through the fused kernel unless scores are capped."""
        if self.cap <= 0:
            return scaled_dot_product_attention(q, keys, values, attn_mask=mask, is_causal=causal, scale=self.scale)
        scores = torch.matmul(q.float(), keys.float().transpose(-1, -2)) * self.scale
        scores = torch.tanh(scores / self.cap) * self.cap
        if causal:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        return torch.matmul(torch.softmax(scores, -1), values.float()).to(q.dtype)


def _refuse(
    k_buf: Tensor, v_buf: Tensor, k_scale: float, v_scale: float, is_cross_attn: bool, sinks: Tensor | None
) -> None:
    """Raise NotImplementedError for what these operators would compute wrongly, each with its reason."""
    if is_cross_attn:
        raise NotImplementedError("cross attention: the CPU engine serves decoder-only models")
    if sinks is not None:
        raise NotImplementedError("attention sinks: the CPU engine has none")
    if not k_buf.dtype.is_floating_point or k_buf.element_size() == 1:
        raise NotImplementedError(f"kv cache of {k_buf.dtype}: the CPU engine needs float32, bfloat16 or float16")
    if k_scale != 1.0 or v_scale != 1.0:
        raise NotImplementedError(f"k_scale {k_scale}, v_scale {v_scale}: the CPU engine has no quantised kv cache")
    if k_buf.shape[-1] != v_buf.shape[-1] and k_buf.data_ptr() == v_buf.data_ptr():
        raise NotImplementedError("MLA (latent kv cache): the CPU engine has ordinary and grouped heads only")


def _refuse_mask(tree_mask: Tensor, counts: list[int], window: int) -> None:
    expected = sum(n * n for n in counts)
    if tree_mask.numel() != expected:
        raise NotImplementedError(
            f"tree mask of {tree_mask.numel()} entries for {expected} pairs of new tokens: "
            "the CPU engine reads QLEN_ONLY masks, neither packed nor over the prefix"
        )
    if window > 0:
        raise NotImplementedError("tree mask with a sliding window: the CPU engine has no such mask")


def _clipped(lengths: list[int], window: int) -> list[int]:
    return [min(n, window) for n in lengths] if window > 0 else lengths


def _grouped(lengths: list[int]) -> Iterable[tuple[int, list[int]]]:
    """Rows by padded length; length 0 is a group of its own."""
    groups: dict[int, list[int]] = defaultdict(list)
    for row, length in enumerate(lengths):
        groups[padded_length(length) if length > 0 else 0].append(row)
    return groups.items()


def _take(tensor: Tensor, index: Tensor | None) -> Tensor:
    return tensor if index is None else tensor.index_select(0, index)


def _running_sum(sizes: list[int]) -> list[int]:
    sums, total = [], 0
    for size in sizes:
        sums.append(total)
        total += size
    return sums


def _offsets(starts: list[int], count: int) -> Tensor:
    """[len(starts), count]: `count` indices from each start on."""
    return torch.tensor(starts).unsqueeze(1) + torch.arange(count)


def _visible(ends: Tensor, n: int, width: int, is_causal: bool, window: int, valid: Tensor | None) -> Tensor:
    """Keys that the last n tokens before `ends` see, bool [rows, n, width]."""
    if not is_causal:
        assert valid is not None
        return valid.unsqueeze(1).expand(-1, n, -1)
    keys = torch.arange(width, device=ends.device)
    positions = ((ends - n).unsqueeze(1) + torch.arange(n, device=ends.device)).unsqueeze(2)
    visible = keys <= positions
    return visible & (keys > positions - window) if window > 0 else visible


def _tree_visible(trees: Tensor, prefixes: list[int], width: int) -> Tensor:
    """Keys that the nodes of each tree [rows, n, n] see: the prefix and their ancestors; bool [rows, n, width]."""
    rows, n, _ = trees.shape
    visible = torch.zeros((rows, n, width), dtype=torch.bool, device=trees.device)
    for row, prefix in enumerate(prefixes):
        visible[row, :, :prefix] = True
        visible[row, :, prefix : prefix + n] = trees[row]
    return visible


_library = torch.library.Library("sgl_kernel", "FRAGMENT")
_library.define(
    "decode_attention_cpu(Tensor q, Tensor(b!) k_buf, Tensor(c!) v_buf, float k_scale, float v_scale, Tensor(a!) o, "
    "Tensor? k, Tensor? v, Tensor loc, Tensor attn_logits, Tensor req_to_token, Tensor req_pool_indices, "
    "Tensor seq_lens, float sm_scale, float logit_cap, bool is_cross_attn, int sliding_window_size, "
    "Tensor? encoder_lens, Tensor? sinks) -> ()"
)
_library.define(
    "extend_attention_cpu(Tensor q, Tensor? k, Tensor? v, Tensor(a!) o, Tensor k_buf, Tensor v_buf, float k_scale, "
    "float v_scale, Tensor req_to_token, Tensor req_pool_indices, Tensor seq_lens, Tensor extend_seq_lens, "
    "Tensor extend_start_loc, int max_len_extend, float sm_scale, float logit_cap, bool is_cross_attn, "
    "int sliding_window_size, Tensor? encoder_lens, Tensor? sinks, Tensor? tree_mask, bool is_causal) -> ()"
)
_library.impl("decode_attention_cpu", decode_attention_cpu, "CPU")
_library.impl("extend_attention_cpu", extend_attention_cpu, "CPU")
