"""The operators against sglang's own Triton kernels, which run here as plain Python."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_spec_and_kv import pool, ranges
from trees import Draft, drafts
from triton_reference import launch

from specctl_engine.cpu import kv, spec, tree

pytest.importorskip("sglang")

from sglang.kernels.ops.speculative import cache_locs, eagle, multi_layer_eagle, reconstruct_tree, spec_tree
from sglang.srt.mem_cache import allocation
from sglang.srt.utils import next_power_of_2

SEEDS = st.integers(0, 2**31)
BATCHES = st.integers(1, 16)
# Interpreted Triton is slow.
few = settings(max_examples=25)


@few
@given(BATCHES, SEEDS)
def test_slot_ranges(bs: int, seed: int) -> None:
    table, rows, generator = pool(bs, 40, seed)
    start, end = ranges(bs, 40, generator)
    total = int((end - start).sum())
    slots, ours, theirs = torch.arange(5000, 5000 + total), table.clone(), table.clone()
    kv.assign_req_to_token_pool_cpu(rows, ours, start, end, slots, 40)
    launch(allocation.assign_req_to_token_pool, (bs,), rows, theirs, start, end, slots, 40, next_power_of_2(bs))
    assert torch.equal(ours, theirs)
    packed, reference = torch.full((2, total + 1), -1)
    kv.assign_extend_cache_locs_cpu(rows, ours, start, end, packed, 40)
    launch(cache_locs.assign_extend_cache_locs, (bs,), rows, ours, start, end, reference, 40, next_power_of_2(bs))
    assert torch.equal(packed, reference)


@few
@given(BATCHES, st.integers(1, 4), st.integers(1, 5), SEEDS)
def test_draft_slots(bs: int, topk: int, steps: int, seed: int) -> None:
    table, rows, generator = pool(bs, 60, seed)
    seq_lens = torch.randint(1, 60 - topk * steps + 1, (bs,), generator=generator)
    ours, theirs = torch.full((2, bs * topk * steps), -1)
    kv.assign_draft_cache_locs_contiguous_cpu(rows, table, seq_lens, ours, 60, topk, steps)
    kernel = cache_locs.assign_draft_cache_locs_contiguous
    launch(kernel, (bs,), rows, table, seq_lens, theirs, 60, topk, steps)
    assert torch.equal(ours, theirs)


@few
@given(st.integers(1, 5), st.integers(1, 3), st.integers(2, 4), SEEDS)
def test_what_each_draft_step_of_each_branch_sees(bs: int, topk: int, steps: int, seed: int) -> None:
    table, rows, generator = pool(bs, 60, seed)
    seq_lens = torch.randint(1, 60 - topk * steps + 1, (bs,), generator=generator)
    ours = spec.build_draft_decode_metadata_cpu(table, rows, seq_lens, topk, steps, 60)
    indices = torch.full((steps, 60 * bs * topk), -1)
    indptr = torch.zeros((steps, bs * topk + 1), dtype=torch.int64)
    positions = seq_lens.repeat_interleave(topk)
    launch(
        cache_locs.generate_draft_decode_kv_indices,
        (steps, bs, topk),
        rows,
        table,
        seq_lens,
        indices,
        indptr,
        positions,
        60,
        indices.shape[1],
        indptr.shape[1],
        next_power_of_2(bs),
        next_power_of_2(steps),
        next_power_of_2(bs * topk),
        1,
    )
    for step in range(steps):
        for row in range(bs * topk):
            begin, end = indptr[step, row : row + 2].tolist()
            assert ours[row, : end - begin].tolist() == indices[step, begin:end].tolist()
            assert end - begin == positions[row] + step + 1


@few
@given(BATCHES, st.integers(1, 7), SEEDS)
def test_bonus_tokens_and_accepted_slots(bs: int, width: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 1000, (bs * width,), generator=generator, dtype=torch.int32)
    lengths = torch.randint(1, width + 1, (bs,), generator=generator, dtype=torch.int32)
    ours, theirs = torch.full((2, bs), -1, dtype=torch.int32)
    spec.fill_bonus_tokens_cpu(tokens, lengths, ours, width)
    launch(eagle.fill_bonus_tokens, (bs,), tokens, lengths, theirs, width)
    assert torch.equal(ours, theirs)
    slots = torch.randperm(200, generator=generator)
    index = torch.randint(-1, 100, (bs, width), generator=generator, dtype=torch.int32)
    index[torch.rand(bs, width, generator=generator) < 0.4] = -1
    packed, reference = torch.zeros((2, bs * width), dtype=torch.int64)
    spec.fill_accept_out_cache_loc_cpu(index, slots, packed)
    size = bs * width
    launch(eagle.fill_accept_out_cache_loc, (size,), index, slots, reference, next_power_of_2(size))
    assert torch.equal(packed, reference)


@few
@given(st.lists(st.integers(0, 9), min_size=1, max_size=16), SEEDS, st.booleans())
def test_rotation(lengths: list[int], seed: int, select: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    counts = torch.tensor(lengths)
    starts = counts.cumsum(0) - counts
    ids = torch.randint(0, 1000, (sum(lengths) + 1,), generator=generator)
    new = torch.randint(5000, 6000, (len(lengths),), generator=generator)
    places = starts + (counts - 1).clamp(min=0) // 2 if select else None
    ours, theirs = ids.clone(), ids.clone()
    spec.rotate_input_ids_cpu(ours, starts, counts, new, places)
    kernel = multi_layer_eagle.rotate_input_ids_kernel
    launch(kernel, (len(lengths),), theirs, starts, counts, new, places, BLOCK_SIZE=16)
    assert torch.equal(ours, theirs)


@few
@given(drafts(), st.sampled_from([0, 1]), st.integers(2, 6), SEEDS)
def test_trees(draft: Draft, mode: int, vocabulary: int, seed: int) -> None:
    bs, n = min(draft.seq_lens.numel(), 4), draft.n
    parent_list, selected, seq_lens = (t[:bs].contiguous() for t in (draft.parent_list, draft.selected, draft.seq_lens))
    results = []
    for ours in (True, False):
        mask = torch.ones((int(seq_lens.sum()) * n if mode == 0 else 0) + bs * n * n, dtype=torch.bool)
        positions = torch.full((bs * n,), -7)
        index, child, sibling = (torch.full((bs, n), -1) for _ in range(3))
        outputs = (mask, positions, index, child, sibling)
        if ours:
            tree.build_tree_kernel_efficient_cpu(
                parent_list, selected, seq_lens, *outputs, draft.topk, draft.depth, n, spec_tree.TreeMaskMode(mode)
            )
        else:
            launch(
                spec_tree.sgl_build_tree_kernel_efficient_triton,
                (bs,),
                parent_list,
                selected,
                seq_lens,
                seq_lens.cumsum(0) - seq_lens,
                *outputs,
                topk=draft.topk,
                depth=draft.depth,
                draft_token_num=n,
                tree_mask_mode=mode,
                batch_size=bs,
                parent_list_stride=parent_list.shape[1],
                selected_index_stride=n - 1,
            )
        results.append(outputs)
    for got, expected in zip(*results, strict=True):
        assert torch.equal(got, expected)
    _, _, index, child, sibling = results[0]
    _verify(index, child, sibling, draft.depth + 1, vocabulary, seed)


def _verify(
    index: torch.Tensor, child: torch.Tensor, sibling: torch.Tensor, width: int, vocabulary: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    tokens, predicted = torch.randint(0, vocabulary, (2, *index.shape), generator=generator)
    results = []
    for ours in (True, False):
        predicts = torch.zeros(index.numel(), dtype=torch.int32)
        accept_index = torch.full((index.shape[0], width), -1, dtype=torch.int32)
        accepted = torch.full((index.shape[0],), -9, dtype=torch.int32)
        args = (predicts, accept_index, accepted, tokens, index, child, sibling, predicted)
        if ours:
            tree.verify_tree_greedy_cpu(*args)
        else:
            launch(
                spec_tree.verify_tree_greedy_kernel_triton,
                (index.shape[0],),
                *args,
                batch_size=index.shape[0],
                num_speculative_tokens=width,
                num_draft_tokens=index.shape[1],
            )
        results.append(args[:3])
    for got, expected in zip(*results, strict=True):
        assert torch.equal(got, expected)


@few
@given(BATCHES, st.integers(1, 12), SEEDS)
def test_reconstruction(bs: int, n: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(bs * n * n, generator=generator) < 0.4
    seq_lens = torch.randint(0, 50, (bs,), generator=generator)
    ours = [torch.full((bs * n,), -7) for _ in range(4)]
    theirs = [t.clone() for t in ours]
    tree.reconstruct_indices_from_tree_mask(mask, seq_lens, *ours, bs, n)
    launch(reconstruct_tree._reconstruct_tree_mask_kernel, (bs,), mask, seq_lens, *theirs, n, next_power_of_2(n))
    for got, expected in zip(ours, theirs, strict=True):
        assert torch.equal(got, expected)
