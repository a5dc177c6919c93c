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

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from specctl_engine.cpu.plan import Group, Layout, mask_of, plan


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
    """One query token a row over that row's `seq_lens` cached tokens; writes `o`, zeros for a row without tokens.

    `k` and `v` [rows, kv_heads, d], where given, are stored at slots `loc` first. `sliding_window_size` counts the
    query's own token; 0 is none.

    Raises:
        NotImplementedError: see `_refuse`.
    """
    _refuse(k_buf, v_buf, k_scale, v_scale, is_cross_attn, sinks)
    if k is not None and v is not None:
        k_buf.index_copy_(0, loc, k.view(-1, *k_buf.shape[1:]).to(k_buf.dtype))
        v_buf.index_copy_(0, loc, v.view(-1, *v_buf.shape[1:]).to(v_buf.dtype))
    lengths = seq_lens.tolist()
    rows = len(lengths)
    if 0 in lengths:
        o.zero_()
    layout = Layout(tuple(lengths), (1,) * rows, tuple(range(rows)), True, sliding_window_size)
    _Cache(k_buf, v_buf, req_to_token, sm_scale, logit_cap).run(q, o, req_pool_indices, layout, None)


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
    counts = tuple(extend_seq_lens.tolist())
    if tree_mask is not None:
        _refuse_mask(tree_mask, counts, sliding_window_size)
    layout = Layout(tuple(seq_lens.tolist()), counts, tuple(extend_start_loc.tolist()), is_causal, sliding_window_size)
    _Cache(k_buf, v_buf, req_to_token, sm_scale, logit_cap).run(q, o, req_pool_indices, layout, tree_mask)


class _Cache:
    """The KV cache of one layer and how its scores are made."""

    __slots__ = ("cap", "keys", "scale", "table", "values")

    def __init__(self, keys: Tensor, values: Tensor, table: Tensor, scale: float, cap: float) -> None:
        self.keys, self.values, self.table, self.scale, self.cap = keys, values, table, scale, cap

    def run(self, q: Tensor, o: Tensor, rows: Tensor, layout: Layout, tree_mask: Tensor | None) -> None:
        """Write to `o` the attention of `q` for requests that have `rows` of the slot table."""
        trees = None if tree_mask is None else tree_mask.numpy().tobytes()
        heads = q.shape[1] // self.keys.shape[1]
        planned = plan(layout, self.table.shape[1], heads, q.dtype, trees)
        for row, tree in planned.long:
            start, n = layout.starts[row], layout.counts[row]
            out = self._attend_long(q[start : start + n], rows[row], layout, row, tree)
            o[start : start + n] = out
        for group in planned.groups:
            own = rows if group.rows is None else rows.index_select(0, group.rows)
            if group.tokens is None:
                # A batch that was padded for others' sake has queries behind its requests' own.
                count = group.n * own.shape[0]
                o[:count] = self._attend(q[:count], self._slots(own, group), group)
            else:
                out = self._attend(q.index_select(0, group.tokens), self._slots(own, group), group)
                o.index_copy_(0, group.tokens, out)

    def _slots(self, rows: Tensor, group: Group) -> Tensor:
        """Slots of every row's keys, [rows * keys].

        A place that does not count repeats the row's first slot: what stale entries point to may be another request's
        NaN, and NaN times the weight 0 is NaN.
        """
        slots = self.table[rows, : group.valid.shape[1]]
        return torch.where(group.valid, slots, slots[:, :1]).flatten()

    def _attend(self, q: Tensor, slots: Tensor, group: Group) -> Tensor:
        """[rows * n, heads, d_v] from q [rows * n, heads, d] and slots [rows * keys]."""
        tokens, heads, dim = q.shape
        n, rows, kv_heads = group.n, tokens // group.n, self.keys.shape[1]
        if n == 1:
            folded = q.view(rows, kv_heads, -1, dim)
        else:
            folded = q.view(rows, n, kv_heads, -1, dim).permute(0, 2, 3, 1, 4).reshape(rows, kv_heads, -1, dim)
        # index_select copies whole slots; indexing with the same tensor takes ten times as long.
        keys = self.keys.index_select(0, slots).view(rows, -1, kv_heads, dim).transpose(1, 2)
        values = self.values.index_select(0, slots).view(rows, -1, *self.values.shape[1:]).transpose(1, 2)
        if self.cap <= 0:
            out = scaled_dot_product_attention(folded, keys, values, attn_mask=group.mask, scale=self.scale)
        else:
            # Plain matrix products, unlike the fused kernel, round a row differently in another batch.
            parts = zip(*(t.split(1) for t in (folded, keys, values, group.mask)), strict=True)
            out = torch.cat([self._capped(*part) for part in parts])
        if n == 1:
            return out.reshape(rows, heads, -1)
        return out.view(rows, kv_heads, -1, n, out.shape[-1]).permute(0, 3, 1, 2, 4).reshape(tokens, heads, -1)

    def _attend_long(self, q: Tensor, row: Tensor, layout: Layout, index: int, tree: Tensor | None) -> Tensor:
        """[n, heads, d_v] of one request's many new tokens, q [n, heads, d]; keys are repeated by strides only."""
        n, heads, dim = q.shape
        end, kv_heads = layout.lengths[index], self.keys.shape[1]
        slots = self.table[row, :end]
        keys, values = (
            buffer.index_select(0, slots).transpose(0, 1).unsqueeze(1).expand(-1, heads // kv_heads, -1, -1)
            for buffer in (self.keys, self.values)
        )
        folded = q.view(n, kv_heads, -1, dim).permute(1, 2, 0, 3)
        plain = layout.causal and tree is None and end == n and layout.window <= 0
        mask = None if plain and self.cap <= 0 else mask_of(layout, index, tree, q.dtype)
        if self.cap <= 0:
            out = scaled_dot_product_attention(folded, keys, values, attn_mask=mask, is_causal=plain, scale=self.scale)
        else:
            assert mask is not None
            out = self._capped(folded, keys, values, mask)
        return out.permute(2, 0, 1, 3).reshape(n, heads, -1)

    def _capped(self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        scores = torch.matmul(q.float(), keys.float().transpose(-1, -2)) * self.scale
        scores = torch.tanh(scores / self.cap) * self.cap + mask
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


def _refuse_mask(tree_mask: Tensor, counts: tuple[int, ...], window: int) -> None:
    expected = sum(n * n for n in counts)
    if tree_mask.numel() != expected:
        raise NotImplementedError(
            f"tree mask of {tree_mask.numel()} entries for {expected} pairs of new tokens: "
            "the CPU engine reads QLEN_ONLY masks, neither packed nor over the prefix"
        )
    if window > 0:
        raise NotImplementedError("tree mask with a sliding window: the CPU engine has no such mask")


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
