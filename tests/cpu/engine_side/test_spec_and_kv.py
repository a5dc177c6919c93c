from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specctl_engine.cpu import kv, spec

SEEDS = st.integers(0, 2**31)
BATCHES = st.integers(1, 16)


def pool(bs: int, width: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Generator]:
    """A slot table with distinct slots, the batch's rows in it, and the generator."""
    generator = torch.Generator().manual_seed(seed)
    table = torch.randperm((bs + 3) * width, generator=generator).view(bs + 3, width).to(torch.int32)
    return table, torch.randperm(bs + 3, generator=generator)[:bs], generator


def ranges(bs: int, width: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(0, width + 1, (2, bs), generator=generator).sort(dim=0).values.unbind(0)


@given(BATCHES, st.integers(1, 40), SEEDS, st.sampled_from([torch.int32, torch.int64]))
def test_pool_rows_take_the_packed_slots(bs: int, width: int, seed: int, dtype: torch.dtype) -> None:
    table, rows, generator = pool(bs, width, seed)
    start, end = ranges(bs, width, generator)
    slots = torch.arange(10_000, 10_000 + int((end - start).sum()), dtype=dtype)
    expected, offset = table.tolist(), 0
    for row, first, last in zip(rows.tolist(), start.tolist(), end.tolist(), strict=True):
        for position in range(first, last):
            expected[row][position] = 10_000 + offset
            offset += 1
    kv.assign_req_to_token_pool_cpu(rows, table, start, end, slots, width)
    assert table.tolist() == expected


@given(BATCHES, st.integers(1, 40), SEEDS, st.integers(0, 5))
def test_extend_slots_are_packed_and_the_rest_is_kept(bs: int, width: int, seed: int, spare: int) -> None:
    table, rows, generator = pool(bs, width, seed)
    start, end = ranges(bs, width, generator)
    out = torch.full((int((end - start).sum()) + spare,), -1)
    kv.assign_extend_cache_locs_cpu(rows, table, start, end, out, width)
    pairs = zip(rows.tolist(), start.tolist(), end.tolist(), strict=True)
    expected = [int(table[row, position]) for row, first, last in pairs for position in range(first, last)]
    assert out.tolist() == expected + [-1] * spare


@given(BATCHES, st.integers(1, 4), st.integers(1, 5), SEEDS)
def test_draft_slots_follow_each_sequence(bs: int, topk: int, steps: int, seed: int) -> None:
    table, rows, generator = pool(bs, 60, seed)
    seq_lens = torch.randint(0, 60 - topk * steps + 1, (bs,), generator=generator)
    out = torch.full((bs * topk * steps,), -1)
    kv.assign_draft_cache_locs_contiguous_cpu(rows, table, seq_lens, out, 60, topk, steps)
    expected = [int(table[r, s + i]) for r, s in zip(rows, seq_lens, strict=True) for i in range(topk * steps)]
    assert out.tolist() == expected


@given(
    st.integers(1, 30),
    st.sampled_from([(2, 8), (1, 3), (3, 5)]),
    SEEDS,
    st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_copies_read_every_source_before_any_target(
    count: int, shape: tuple[int, int], seed: int, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(seed)
    buffers = [torch.rand(64, *shape, generator=generator).to(dtype) for _ in range(3)]
    # Targets and sources overlap, and some copies go from a slot to itself.
    target = torch.randperm(64, generator=generator)[:count]
    source = torch.randint(0, 64, (count,), generator=generator)
    source[::3] = target[::3]
    expected = [buffer.clone() for buffer in buffers]
    for buffer, old in zip(expected, [b.clone() for b in buffers], strict=True):
        for t, s in zip(target.tolist(), source.tolist(), strict=True):
            buffer[t] = old[s]
    addresses = torch.tensor([b.data_ptr() for b in buffers], dtype=torch.uint64)
    strides = torch.tensor([b.stride(0) * b.itemsize for b in buffers])
    kv.copy_all_layer_kv_cache_cpu(addresses, strides, target, source)
    for got, wanted in zip(buffers, expected, strict=True):
        assert torch.equal(got, wanted)


@given(BATCHES, st.integers(1, 7), SEEDS)
def test_bonus_token_is_the_last_accepted(bs: int, width: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 1000, (bs * width,), generator=generator, dtype=torch.int32)
    lengths = torch.randint(1, width + 1, (bs,), generator=generator, dtype=torch.int32)
    bonus = torch.full((bs,), -1, dtype=torch.int32)
    spec.fill_bonus_tokens_cpu(tokens, lengths, bonus, width)
    assert bonus.tolist() == [int(tokens[b * width + int(lengths[b]) - 1]) for b in range(bs)]


@given(BATCHES, st.integers(1, 7), SEEDS)
def test_accepted_slots_are_packed_in_order(bs: int, width: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    slots = torch.randperm(500, generator=generator)[: bs * 8]
    index = torch.randint(0, bs * 8, (bs, width), generator=generator, dtype=torch.int32)
    index[torch.rand(bs, width, generator=generator) < 0.5] = -1
    out = torch.zeros(bs * width, dtype=torch.int64)
    spec.fill_accept_out_cache_loc_cpu(index, slots, out)
    expected = [int(slots[i]) for i in index.flatten().tolist() if i != -1]
    assert out.tolist() == expected + [0] * (bs * width - len(expected))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=16), SEEDS, st.booleans())
def test_rotation_shifts_every_part_and_nothing_else(parts: list[tuple[int, int]], seed: int, select: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    starts, lengths, total = [], [], 0
    for gap, length in parts:
        starts.append(total + gap)
        lengths.append(length)
        total += gap + length
    ids = torch.randint(0, 1000, (total + 1,), generator=generator)
    new = torch.randint(5000, 6000, (len(parts), 1), generator=generator)
    places = [s + max(n - 1, 0) // 2 for s, n in zip(starts, lengths, strict=True)]
    expected = ids.tolist()
    for i, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        if length == 0:
            continue
        part = expected[start : start + length]
        expected[start : start + length] = part[1:] + part[-1:]
        expected[places[i] if select else start + length - 1] = int(new[i])
    spec.rotate_input_ids_cpu(
        ids, torch.tensor(starts), torch.tensor(lengths), new, torch.tensor(places) if select else None
    )
    assert ids.tolist() == expected


@given(BATCHES, st.integers(1, 4), st.integers(1, 5), SEEDS, st.sampled_from([100, 300]))
def test_each_draft_branch_sees_the_prefix_and_its_own_slots(
    bs: int, topk: int, steps: int, seed: int, width: int
) -> None:
    table, rows, generator = pool(bs, width, seed)
    seq_lens = torch.randint(0, width - topk * steps + 1, (bs,), generator=generator)
    out = spec.build_draft_decode_metadata_cpu(table, rows, seq_lens, topk, steps, width)
    assert out.shape[0] == bs * topk
    assert out.dtype == table.dtype
    for b, (row, seq) in enumerate(zip(rows.tolist(), seq_lens.tolist(), strict=True)):
        for branch in range(topk):
            begin = seq + branch * steps
            expected = table[row, :seq].tolist() + table[row, begin : begin + steps].tolist()
            assert out[b * topk + branch, : seq + steps].tolist() == expected


def test_the_draft_table_is_as_wide_as_attention_pads_every_row() -> None:
    """A narrower one would make a row's padding, and so its last bits, depend on the longest row of the batch."""
    table = torch.arange(2 * 4096, dtype=torch.int32).view(2, 4096)
    out = spec.build_draft_decode_metadata_cpu(table, torch.tensor([0, 1]), torch.tensor([3, 100]), 4, 3, 4096)
    assert out.shape[1] == 128


@pytest.mark.parametrize("bs", [1, 4])
def test_the_pool_is_unchanged_by_the_draft_table(bs: int) -> None:
    table, rows, _ = pool(bs, 100, 0)
    before = table.clone()
    spec.build_draft_decode_metadata_cpu(table, rows, torch.full((bs,), 50), 4, 3, 100)
    assert torch.equal(table, before)
