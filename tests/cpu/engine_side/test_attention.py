from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specctl_engine.cpu import attention
from specctl_engine.cpu.plan import padded_length

SEEDS = st.integers(0, 2**31)
HEADS = st.sampled_from([(4, 4, 16), (4, 2, 32), (6, 2, 8), (8, 1, 16)])
POOL_LEN = 200


@dataclass
class Batch:
    """Requests in a paged cache, with the queries of their last tokens."""

    q: torch.Tensor
    k_buf: torch.Tensor
    v_buf: torch.Tensor
    table: torch.Tensor
    rows: torch.Tensor
    lengths: list[int]
    counts: list[int]
    scale: float = 0.3
    cap: float = 0.0
    window: int = 0
    causal: bool = True
    tree: torch.Tensor | None = None

    def decode(self, **changes: Any) -> torch.Tensor:
        o = torch.full((*self.q.shape[:2], self.v_buf.shape[-1]), float("nan"), dtype=self.q.dtype)
        args = {
            "q": self.q,
            "k_buf": self.k_buf,
            "v_buf": self.v_buf,
            "k_scale": 1.0,
            "v_scale": 1.0,
            "o": o,
            "k": None,
            "v": None,
            "loc": torch.empty(0, dtype=torch.int64),
            "attn_logits": torch.empty(0),
            "req_to_token": self.table,
            "req_pool_indices": self.rows,
            "seq_lens": torch.tensor(self.lengths),
            "sm_scale": self.scale,
            "logit_cap": self.cap,
            "is_cross_attn": False,
            "sliding_window_size": self.window,
            "encoder_lens": None,
            "sinks": None,
        }
        torch.ops.sgl_kernel.decode_attention_cpu(**(args | changes))
        return o

    def extend(self, **changes: Any) -> torch.Tensor:
        o = torch.full((*self.q.shape[:2], self.v_buf.shape[-1]), float("nan"), dtype=self.q.dtype)
        counts = torch.tensor(self.counts, dtype=torch.int32)
        args = {
            "q": self.q,
            "k": None,
            "v": None,
            "o": o,
            "k_buf": self.k_buf,
            "v_buf": self.v_buf,
            "k_scale": 1.0,
            "v_scale": 1.0,
            "req_to_token": self.table,
            "req_pool_indices": self.rows,
            "seq_lens": torch.tensor(self.lengths),
            "extend_seq_lens": counts,
            "extend_start_loc": (counts.cumsum(0) - counts).int(),
            "max_len_extend": max(self.counts),
            "sm_scale": self.scale,
            "logit_cap": self.cap,
            "is_cross_attn": False,
            "sliding_window_size": self.window,
            "encoder_lens": None,
            "sinks": None,
            "tree_mask": self.tree,
            "is_causal": self.causal,
        }
        torch.ops.sgl_kernel.extend_attention_cpu(**(args | changes))
        return o

    def only(self, row: int) -> Batch:
        """The same request as a batch of its own."""
        first, trees = sum(self.counts[:row]), sum(n * n for n in self.counts[:row])
        n = self.counts[row]
        tree = None if self.tree is None else self.tree[trees : trees + n * n].clone()
        return Batch(
            self.q[first : first + n].clone(),
            self.k_buf,
            self.v_buf,
            self.table,
            self.rows[row : row + 1].clone(),
            [self.lengths[row]],
            [n],
            self.scale,
            self.cap,
            self.window,
            self.causal,
            tree,
        )


def make(lengths: list[int], counts: list[int], heads: tuple[int, int, int], seed: int, **rest: Any) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    n_heads, kv_heads, dim = heads
    bs = len(lengths)
    slots = bs * POOL_LEN + 7
    k_buf, v_buf = torch.randn(2, slots, kv_heads, dim, generator=generator).unbind(0)
    # Entries behind a sequence are stale: here they point at a slot that a broken request has filled with NaN.
    poison = slots - 1
    k_buf[poison] = v_buf[poison] = float("nan")
    table = torch.full((bs + 2, POOL_LEN), poison, dtype=torch.int32)
    rows = torch.randperm(bs + 2, generator=generator)[:bs]
    free = torch.randperm(slots - 1, generator=generator).int()
    for i, (row, length) in enumerate(zip(rows.tolist(), lengths, strict=True)):
        table[row, :length] = free[i * POOL_LEN : i * POOL_LEN + length]
    q = torch.randn(sum(counts), n_heads, dim, generator=generator)
    return Batch(q, k_buf, v_buf, table, rows, lengths, counts, **rest)


def slow(batch: Batch) -> torch.Tensor:
    """Attention one query and one head at a time, in float64, from the definition."""
    out = torch.empty(*batch.q.shape[:2], batch.v_buf.shape[-1], dtype=torch.float64)
    group = batch.q.shape[1] // batch.k_buf.shape[1]
    token = mask_start = 0
    for row, (length, n) in enumerate(zip(batch.lengths, batch.counts, strict=True)):
        slots = batch.table[batch.rows[row], :length].tolist()
        for i in range(n):
            position = length - n + i
            seen = [p for p in range(length) if not batch.causal or p <= position]
            if batch.window:
                seen = [p for p in seen if position - p < batch.window]
            if batch.tree is not None:
                inside = batch.tree[mask_start + i * n : mask_start + (i + 1) * n].tolist()
                seen = [p for p in range(length) if p < length - n or inside[p - (length - n)]]
            keys = batch.k_buf[[slots[p] for p in seen]].double()
            values = batch.v_buf[[slots[p] for p in seen]].double()
            for head in range(batch.q.shape[1]):
                scores = keys[:, head // group] @ batch.q[token, head].double() * batch.scale
                if batch.cap:
                    scores = batch.cap * torch.tanh(scores / batch.cap)
                out[token, head] = torch.softmax(scores, 0) @ values[:, head // group]
            token += 1
        mask_start += n * n
    return out.float()


def close(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-6)


lengths_of = st.lists(st.integers(1, POOL_LEN), min_size=1, max_size=16)


@given(lengths_of, HEADS, SEEDS, st.sampled_from([0.0, 5.0]), st.sampled_from([0, 1, 7, 64, 150]))
def test_decode(lengths: list[int], heads: tuple[int, int, int], seed: int, cap: float, window: int) -> None:
    batch = make(lengths, [1] * len(lengths), heads, seed, cap=cap, window=window)
    close(batch.decode(), slow(batch))


@given(lengths_of, HEADS, SEEDS, st.sampled_from([0.0, 5.0]), st.sampled_from([0, 9]))
def test_a_decoded_row_does_not_depend_on_the_batch(
    lengths: list[int], heads: tuple[int, int, int], seed: int, cap: float, window: int
) -> None:
    batch = make(lengths, [1] * len(lengths), heads, seed, cap=cap, window=window)
    together = batch.decode()
    for row in range(len(lengths)):
        assert torch.equal(together[row], batch.only(row).decode()[0])


def test_decode_stores_the_new_keys_and_values_first() -> None:
    batch = make([5, 9], [1, 1], (4, 2, 16), seed=1)
    loc = torch.stack([batch.table[row, n - 1] for row, n in zip(batch.rows, batch.lengths, strict=True)]).long()
    k, v = torch.randn(2, 2, 2, 16)
    got = batch.decode(k=k, v=v, loc=loc)
    assert torch.equal(batch.k_buf[loc], k)
    assert torch.equal(batch.v_buf[loc], v)
    close(got, slow(batch))


def test_a_row_without_tokens_is_zero() -> None:
    batch = make([4, 3], [1, 1], (4, 2, 16), seed=1)
    batch.lengths = [0, 3]
    got = batch.decode()
    assert not got[0].any()
    close(got[1:], slow(batch.only(1)))


def test_queries_behind_the_requests_own_are_left_alone() -> None:
    batch = make([5, 90], [2, 2], (4, 2, 16), seed=1)
    alone = batch.extend()
    batch.q = torch.cat([batch.q, torch.zeros(3, 4, 16)])
    padded = batch.extend()
    assert torch.equal(padded[:4], alone)
    assert padded[4:].isnan().all()
    batch = make([80, 90], [2, 2], (4, 2, 16), seed=1)
    batch.q = torch.cat([batch.q, torch.zeros(3, 4, 16)])
    assert batch.extend()[4:].isnan().all()


@st.composite
def extends(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    lengths = draw(st.lists(st.integers(1, POOL_LEN), min_size=1, max_size=8))
    most = draw(st.sampled_from([4, 64, POOL_LEN]))
    return lengths, [draw(st.integers(0 if len(lengths) > 1 else 1, min(n, most))) for n in lengths]


# The definition in Python takes long for 200 queries: fewer heads than above.
FEW_HEADS = st.sampled_from([(2, 1, 8), (2, 2, 16)])


@given(
    extends(),
    FEW_HEADS,
    SEEDS,
    st.sampled_from([0.0, 5.0]),
    st.sampled_from([(0, True), (9, True), (150, True), (0, False)]),
)
def test_extend(
    parts: tuple[list[int], list[int]], heads: tuple[int, int, int], seed: int, cap: float, mask: tuple[int, bool]
) -> None:
    window, causal = mask
    batch = make(*parts, heads, seed, cap=cap, window=window, causal=causal)
    if sum(parts[1]):
        close(batch.extend(), slow(batch))


@given(extends(), HEADS, SEEDS, st.booleans())
def test_an_extended_row_does_not_depend_on_the_batch(
    parts: tuple[list[int], list[int]], heads: tuple[int, int, int], seed: int, with_tree: bool
) -> None:
    batch = make(*parts, heads, seed)
    if with_tree:
        batch.tree = random_trees(parts[1], seed)
    if not sum(parts[1]):
        return
    together = batch.extend().split(parts[1])
    for row, n in enumerate(parts[1]):
        if n:
            assert torch.equal(together[row], batch.only(row).extend())


def random_trees(counts: list[int], seed: int) -> torch.Tensor:
    """Every node sees itself and a random set of earlier ones."""
    generator = torch.Generator().manual_seed(seed)
    masks = [(torch.rand(n, n, generator=generator) < 0.5).tril(-1) | torch.eye(n, dtype=torch.bool) for n in counts]
    return torch.cat([mask.flatten() for mask in masks])


@given(extends(), FEW_HEADS, SEEDS)
def test_extend_with_tree_masks(parts: tuple[list[int], list[int]], heads: tuple[int, int, int], seed: int) -> None:
    batch = make(*parts, heads, seed)
    batch.tree = random_trees(parts[1], seed)
    if sum(parts[1]):
        close(batch.extend(), slow(batch))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_other_float_types(dtype: torch.dtype) -> None:
    batch = make([7, 100], [1, 1], (4, 2, 16), seed=3)
    wanted = slow(batch)
    batch.q, batch.k_buf, batch.v_buf = (t.to(dtype) for t in (batch.q, batch.k_buf, batch.v_buf))
    for got in (batch.decode(), batch.extend()):
        assert got.dtype == dtype
        torch.testing.assert_close(got.float(), wanted, rtol=0.05, atol=0.03)


@pytest.mark.parametrize("window", [0, 9])
def test_agrees_with_the_pure_torch_attention_of_sglang(window: int) -> None:
    native = pytest.importorskip("sglang.srt.layers.attention.torch_native_backend").TorchNativeAttnBackend
    backend = SimpleNamespace(_make_sliding_window_mask=native._make_sliding_window_mask)
    decoded = make([3, 70, 130, 200], [1] * 4, (4, 2, 32), seed=5, window=window)
    extended = make([3, 70, 130, 200], [3, 4, 1, 90], (4, 2, 32), seed=5, window=window)
    for batch, run in ((decoded, native._run_sdpa_forward_decode), (extended, native._run_sdpa_forward_extend)):
        counts = torch.tensor(batch.counts)
        lengths = torch.tensor(batch.lengths)
        out = torch.empty_like(batch.q)
        common = {
            "scaling": batch.scale,
            "enable_gqa": True,
            "causal": batch is extended,
            "sliding_window_size": window - 1 if window else None,
        }
        if batch is extended:
            prefix = lengths - counts
            run(
                backend,
                batch.q,
                out,
                batch.k_buf,
                batch.v_buf,
                batch.table,
                batch.rows,
                lengths,
                prefix,
                counts,
                **common,
            )
            close(batch.extend(), out)
        else:
            run(backend, batch.q, out, batch.k_buf, batch.v_buf, batch.table, batch.rows, lengths, **common)
            close(batch.decode(), out)


@given(st.integers(1, 100_000))
def test_padding_is_monotone_and_wastes_at_most_half(length: int) -> None:
    pad = padded_length(length)
    assert length <= pad <= max(64, math.ceil(length * 1.5))
    assert pad <= padded_length(length + 1)


REFUSED = {
    "cross attention": {"is_cross_attn": True},
    "attention sinks": {"sinks": torch.zeros(4)},
    "k_scale": {"k_scale": 0.5},
    "v_scale": {"v_scale": 2.0},
    "kv cache of torch.float8_e4m3fn": {"k_buf": torch.zeros(300, 2, 16).to(torch.float8_e4m3fn)},
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refuses_what_it_would_compute_wrongly(reason: str) -> None:
    batch = make([5, 9], [1, 1], (4, 2, 16), seed=1)
    for run in (batch.decode, batch.extend):
        with pytest.raises(NotImplementedError, match=reason):
            run(**REFUSED[reason])


def test_refuses_mla() -> None:
    batch = make([5, 9], [1, 1], (4, 1, 16), seed=1)
    batch.v_buf = batch.k_buf[..., :8]
    for run in (batch.decode, batch.extend):
        with pytest.raises(NotImplementedError, match="MLA"):
            run()


def test_refuses_tree_masks_of_another_kind() -> None:
    batch = make([5, 9], [2, 3], (4, 2, 16), seed=1)
    for mask in (torch.ones(5 * 2 + 9 * 3, dtype=torch.bool), torch.zeros(5, dtype=torch.uint8)):
        with pytest.raises(NotImplementedError, match="QLEN_ONLY"):
            batch.extend(tree_mask=mask)
    with pytest.raises(NotImplementedError, match="sliding window"):
        batch.extend(tree_mask=random_trees([2, 3], 0), sliding_window_size=4)


def test_the_operators_are_those_registered() -> None:
    names = ("decode_attention_cpu", "extend_attention_cpu")
    assert all(callable(getattr(torch.ops.sgl_kernel, name)) and hasattr(attention, name) for name in names)
