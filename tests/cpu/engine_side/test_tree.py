from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from trees import Draft, drafts, links_of, parents_of, path_to_root

from specctl_engine.cpu import tree


def build(draft: Draft, mode: int) -> tuple[torch.Tensor, ...]:
    bs, n = draft.seq_lens.numel(), draft.n
    total = int(draft.seq_lens.sum()) * n if mode == 0 else 0
    mask = torch.ones(total + bs * n * n, dtype=torch.bool)
    positions = torch.full((bs * n,), -7)
    index, child, sibling = torch.full((3, bs, n), -1)
    tree.build_tree_kernel_efficient_cpu(
        draft.parent_list,
        draft.selected,
        draft.seq_lens,
        mask,
        positions,
        index,
        child,
        sibling,
        draft.topk,
        draft.depth,
        n,
        mode,
    )
    return mask, positions, index, child, sibling


@given(drafts())
def test_builds_the_links_positions_and_mask_of_every_tree(draft: Draft) -> None:
    bs, n = draft.seq_lens.numel(), draft.n
    mask, positions, index, child, sibling = build(draft, mode=1)
    assert index.flatten().tolist() == list(range(bs * n))
    for b in range(bs):
        parents = parents_of(draft.selected[b].tolist(), draft.parent_list[b].tolist(), draft.topk)
        assert (child[b].tolist(), sibling[b].tolist()) == links_of(parents)
        paths = [path_to_root(i, parents) for i in range(n)]
        seq = int(draft.seq_lens[b])
        assert positions.view(bs, n)[b].tolist() == [seq + len(path) for path in paths]
        expected = [[j == 0 or j in paths[i] for j in range(n)] for i in range(n)]
        assert mask.view(bs, n, n)[b].tolist() == expected


@given(drafts())
def test_full_mask_is_the_short_mask_behind_a_visible_prefix(draft: Draft) -> None:
    bs, n = draft.seq_lens.numel(), draft.n
    short = build(draft, mode=1)[0].view(bs, n, n)
    full, offset = build(draft, mode=0)[0], 0
    for b, seq in enumerate(draft.seq_lens.tolist()):
        part = full[offset : offset + n * (seq + n)].view(n, seq + n)
        offset += part.numel()
        assert part[:, :seq].all()
        assert torch.equal(part[:, seq:], short[b])


def test_a_node_without_its_parent_is_left_out_of_the_links() -> None:
    # Group 1 continues candidate 0, which is not among the nodes: NaN scores do that.
    draft = Draft(torch.tensor([[-1, 0, 1]]), torch.tensor([[1, 2]]), torch.tensor([5]), topk=2, depth=2, n=3)
    _, positions, index, child, sibling = build(draft, mode=1)
    assert index.tolist() == [[0, 1, 2]]
    assert child.tolist() == [[1, -1, -1]]
    assert sibling.tolist() == [[-1, -1, -1]]
    assert positions.tolist() == [5, 6, 6]


def test_refuses_bit_packed_masks() -> None:
    draft = Draft(torch.tensor([[-1, 0]]), torch.tensor([[0]]), torch.tensor([5]), topk=1, depth=2, n=2)
    with pytest.raises(NotImplementedError, match="bit-packed"):
        build(draft, mode=2)


def follow(tokens: list[int], parents: list[int | None], predicted: list[int], width: int) -> list[int]:
    """Accepted nodes of one tree: descend to the first child that carries the predicted token."""
    path = [0]
    while len(path) < width:
        here = path[-1]
        matching = [k for k in range(1, len(tokens)) if parents[k] == here and tokens[k] == predicted[here]]
        if not matching:
            break
        path.append(matching[0])
    return path


@given(drafts(), st.integers(2, 6), st.randoms(use_true_random=False), st.integers(2, 7))
def test_verification_accepts_the_path_that_the_target_predicts(
    draft: Draft, vocabulary: int, random, width: int
) -> None:
    bs, n = draft.seq_lens.numel(), draft.n
    _, _, index, child, sibling = build(draft, mode=1)
    tokens = [[random.randrange(vocabulary) for _ in range(n)] for _ in range(bs)]
    predicted = [[random.randrange(vocabulary) for _ in range(n)] for _ in range(bs)]
    predicts = torch.full((bs * n,), -5, dtype=torch.int32)
    accept_index = torch.full((bs, width), -1, dtype=torch.int32)
    accepted = torch.full((bs,), -9, dtype=torch.int32)
    tree.verify_tree_greedy_cpu(
        predicts=predicts,
        accept_index=accept_index,
        accept_token_num=accepted,
        candidates=torch.tensor(tokens),
        retrive_index=index,
        retrive_next_token=child,
        retrive_next_sibling=sibling,
        target_predict=torch.tensor(predicted),
    )
    wanted_predicts = [-5] * (bs * n)
    for b in range(bs):
        parents = parents_of(draft.selected[b].tolist(), draft.parent_list[b].tolist(), draft.topk)
        path = follow(tokens[b], parents, predicted[b], width)
        assert accepted[b] == len(path) - 1
        assert accept_index[b].tolist() == [b * n + i for i in path] + [-1] * (width - len(path))
        for node in path:
            wanted_predicts[b * n + node] = predicted[b][node]
    assert predicts.tolist() == wanted_predicts


def test_verification_of_an_empty_batch_writes_nothing() -> None:
    empty = torch.empty((0, 4), dtype=torch.long)
    tree.verify_tree_greedy_cpu(
        torch.empty(0, dtype=torch.int32),
        torch.empty((0, 3), dtype=torch.int32),
        torch.empty(0, dtype=torch.int32),
        empty,
        empty,
        empty,
        empty,
        empty,
    )


def reconstruct(mask: torch.Tensor, seq_lens: torch.Tensor) -> tuple[torch.Tensor, ...]:
    bs, n = mask.shape[:2]
    positions = torch.full((bs * n,), -7)
    index, child, sibling = torch.full((3, bs, n), -7)
    tree.reconstruct_indices_from_tree_mask(mask.flatten(), seq_lens, positions, index, child, sibling, bs, n)
    return positions, index, child, sibling


@given(drafts())
def test_reconstruction_undoes_the_mask(draft: Draft) -> None:
    bs, n = draft.seq_lens.numel(), draft.n
    mask, positions, index, child, sibling = build(draft, mode=1)
    again = reconstruct(mask.view(bs, n, n), draft.seq_lens)
    for got, expected in zip(again, (positions, index, child, sibling), strict=True):
        assert torch.equal(got, expected)


@given(st.integers(1, 16), st.integers(1, 12), st.integers(0, 2**31), st.sampled_from([torch.bool, torch.uint8]))
def test_reconstruction_of_any_mask_follows_the_written_contract(
    bs: int, n: int, seed: int, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(bs, n, n, generator=generator) < 0.4
    seq_lens = torch.randint(0, 50, (bs,), generator=generator)
    positions, index, child, sibling = reconstruct(mask.to(dtype), seq_lens)
    assert index.flatten().tolist() == list(range(bs * n))
    for b in range(bs):
        above = [[j for j in range(i) if mask[b, i, j]] for i in range(n)]
        parent = [max(a, default=-1) for a in above]
        for i in range(n):
            assert positions[b * n + i] == seq_lens[b] + len(above[i])
            assert child[b, i] == next((k for k in range(i + 1, n) if i in above[k]), -1)
            same = (k for k in range(i + 1, n) if parent[i] >= 0 and parent[k] == parent[i])
            assert sibling[b, i] == next(same, -1)
