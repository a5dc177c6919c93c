"""Draft trees: links and masks, and greedy verification.

Reference: sglang's kernels in kernels/ops/speculative/spec_tree.py (Triton) and
kernels/jit/include/sgl_kernel/speculative (CUDA). A tree has `n` nodes a request; node 0 is the token that the last
round committed, nodes 1..n-1 are drafted. `next_token` links a node to its first child, `next_sibling` to its parent's
next child, -1 ends a list.

Building is vectorised over batch and nodes, O(n^2) elements in a fixed number of operations. Verification walks links,
one short chain a request: plain lists are several times faster there than tensors of one element.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

_FULL_MASK, _QLEN_ONLY = 0, 1


def build_tree_kernel_efficient_cpu(
    parent_list: Tensor,
    selected_index: Tensor,
    verified_seq_len: Tensor,
    tree_mask: Tensor,
    positions: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Links, positions and attention mask of each request's draft tree.

    Args:
        parent_list: int64 [bs, topk * (depth - 1) + 1] ([bs, 0] when depth is 1): candidate that each group of topk
            candidates continues.
        selected_index: int64 [bs, n - 1], the candidates kept as nodes 1..n-1.
        verified_seq_len: int64 [bs], committed lengths.
        tree_mask: bool, written. QLEN_ONLY: [>= bs * n * n], ancestors and self of every node. FULL_MASK: for each
            request [n, seq_len + n]; only the last n columns are written.
        positions: int64 [bs * n], written: committed length plus depth in the tree.
        retrive_index: int64 [bs, n], written: a node's number in the batch.
        retrive_next_token: int64 [bs, n], written.
        retrive_next_sibling: int64 [bs, n], written.
        topk: candidates a step and branch.
        depth: steps drafted.
        draft_token_num: n.
        tree_mask_mode: 0 FULL_MASK, 1 QLEN_ONLY.

    Raises:
        NotImplementedError: bit-packed masks.
    """
    mode, n, bs = int(tree_mask_mode), draft_token_num, verified_seq_len.numel()
    if mode not in (_FULL_MASK, _QLEN_ONLY):
        raise NotImplementedError("tree_mask_mode QLEN_ONLY_BITPACKING: the CPU engine has no bit-packed tree masks")
    shape = _shape(parent_list.long().numpy().tobytes(), selected_index.long().numpy().tobytes(), bs, n, topk, depth)
    retrive_index.copy_(shape.numbers)
    retrive_next_token.copy_(shape.next_token)
    retrive_next_sibling.copy_(shape.next_sibling)
    mask = shape.mask
    torch.add(shape.depths, verified_seq_len.unsqueeze(1), out=positions.view(bs, n))
    if mode == _QLEN_ONLY:
        tree_mask[: bs * n * n].view(bs, n, n).copy_(mask)
        return
    offset = 0
    for row, seq_len in enumerate(verified_seq_len.tolist()):
        size = n * (seq_len + n)
        tree_mask[offset : offset + size].view(n, seq_len + n)[:, seq_len:] = mask[row]
        offset += size


class _Shape(NamedTuple):
    """What follows from candidates and selection alone: int64 [bs, n], and `mask` bool [bs, n, n]."""

    numbers: Tensor
    next_token: Tensor
    next_sibling: Tensor
    depths: Tensor
    mask: Tensor


# A chain has one shape, and narrow trees few: most rounds find theirs here.
@lru_cache(maxsize=256)
def _shape(parent_list: bytes, selected_index: bytes, bs: int, n: int, topk: int, depth: int) -> _Shape:
    """Shape of a batch of trees, given by the bytes of the two int64 tensors."""
    selected = torch.frombuffer(bytearray(selected_index), dtype=torch.int64).view(bs, n - 1)
    parents = torch.zeros((bs, n), dtype=torch.int64)
    if parent_list:
        candidates = torch.frombuffer(bytearray(parent_list), dtype=torch.int64).view(bs, -1)
        parents[:, 1:] = _parents(candidates, selected, topk)
    parents[:, 0] = -1
    next_token, next_sibling = _links(parents)
    mask, depths = _ancestors(parents, depth)
    return _Shape(torch.arange(bs * n).view(bs, n), next_token, next_sibling, depths, mask)


def _parents(candidates: Tensor, selected: Tensor, topk: int) -> Tensor:
    """Parent of nodes 1..n-1, int64 [bs, n - 1]; -1 for a node whose parent was not selected."""
    group = selected.div(topk, rounding_mode="floor")
    parent = candidates.gather(1, group)
    node = _first_true(parent.unsqueeze(2) == selected.unsqueeze(1))
    return torch.where(group == 0, 0, torch.where(node < 0, -1, node + 1))


def _first_true(condition: Tensor) -> Tensor:
    """Smallest index along the last dimension where `condition` holds, -1 where it holds nowhere; int64."""
    width = condition.shape[-1]
    if width == 0:
        return torch.full(condition.shape[:-1], -1, dtype=torch.int64)
    # The largest of width, width - 1, ... 1 marks the first place; 0 marks none, and width - 0 must become -1.
    rank = torch.arange(width, 0, -1)
    first = width - (condition * rank).amax(-1)
    return first.masked_fill_(first == width, -1)


def _links(parents: Tensor) -> tuple[Tensor, Tensor]:
    """First child and next sibling of every node, int64 [bs, n] each, from `parents` [bs, n]."""
    nodes = torch.arange(parents.shape[1])
    is_child = parents.unsqueeze(1) == nodes.view(1, -1, 1)
    return _first_true(is_child), _next_sibling(parents, nodes)


def _next_sibling(parents: Tensor, nodes: Tensor) -> Tensor:
    later = nodes.unsqueeze(0) > nodes.unsqueeze(1)
    same = parents.unsqueeze(1) == parents.unsqueeze(2)
    return _first_true(same & later & (parents >= 0).unsqueeze(2))


def _ancestors(parents: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """Who sees whom, bool [bs, n, n] (ancestors, self and always node 0), and how deep each node is, int64 [bs, n]."""
    bs, n = parents.shape
    mask = torch.zeros((bs, n, n), dtype=torch.bool)
    mask[:, :, 0] = True
    above = parents.clamp(min=0)
    current = torch.arange(n).expand(bs, n)
    depths = (current > 0).to(torch.int64)
    mask.scatter_(2, current.unsqueeze(2), True)
    for _ in range(min(depth, n) - 1):
        current = above.gather(1, current)
        depths += current > 0
        mask.scatter_(2, current.unsqueeze(2), True)
    return mask, depths


def verify_tree_greedy_cpu(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Follow each request's tree as long as a child carries the token that the target predicts.

    Args:
        predicts: int32 [bs * n], written at accepted nodes: the target's token after that node.
        accept_index: int32 [bs, longest path], its first `accept_token_num + 1` entries written: accepted nodes'
            numbers in the batch.
        accept_token_num: int32 [bs], written: accepted drafts, the bonus token not counted.
        candidates: int64 [bs, n], tokens of the nodes.
        retrive_index: int64 [bs, n], numbers of the nodes in the batch.
        retrive_next_token: int64 [bs, n], first child.
        retrive_next_sibling: int64 [bs, n], next sibling.
        target_predict: int64 [bs, n], what the target says after each node.
    """
    width = accept_index.shape[1]
    predicted = target_predict.flatten().tolist()
    trees = zip(
        candidates.tolist(),
        retrive_index.tolist(),
        retrive_next_token.tolist(),
        retrive_next_sibling.tolist(),
        strict=True,
    )
    # Arrays over the same memory: setting one element of a tensor costs fifty times as much.
    accept, count, out = accept_index.numpy(), accept_token_num.numpy(), predicts.numpy()
    for row, (tokens, numbers, child, sibling) in enumerate(trees):
        path = _greedy_path(tokens, numbers, child, sibling, predicted, width)
        accept[row, : len(path)] = path
        count[row] = len(path) - 1
        for node in path:
            out[node] = predicted[node]


def _greedy_path(
    tokens: list[int], numbers: list[int], child: list[int], sibling: list[int], predicted: list[int], width: int
) -> list[int]:
    """Batch numbers of one request's accepted nodes, node 0 first, `width` at most."""
    path = [numbers[0]]
    node = 0
    while len(path) < width:
        wanted = predicted[path[-1]]
        node = child[node]
        while node != -1 and tokens[node] != wanted:
            node = sibling[node]
        if node == -1:
            break
        path.append(numbers[node])
    return path


def reconstruct_indices_from_tree_mask(
    tree_mask: Tensor,
    verified_seq_len: Tensor,
    positions: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    batch_size: int,
    draft_token_num: int,
) -> None:
    """Links and positions of trees that are given by their masks, as n-gram drafts are.

    The contract is written down in sglang/kernels/ops/speculative/reconstruct_tree.py.

    Args:
        tree_mask: bool or one-byte integers [>= bs * n * n]; entry (i, j) with j < i says that j is an ancestor of i.
        verified_seq_len: int64 [bs], committed lengths.
        positions: int64 [bs * n], written.
        retrive_index: int64 [bs, n], written.
        retrive_next_token: int64 [bs, n], written.
        retrive_next_sibling: int64 [bs, n], written.
        batch_size: bs.
        draft_token_num: n.
    """
    bs, n = batch_size, draft_token_num
    ancestors = tree_mask[: bs * n * n].view(bs, n, n).bool().tril(-1)
    nodes = torch.arange(n)
    positions.view(bs, n).copy_(ancestors.sum(-1) + verified_seq_len.view(bs, 1))
    retrive_index.view(bs, n).copy_(torch.arange(bs * n).view(bs, n))
    retrive_next_token.view(bs, n).copy_(_first_true(ancestors.transpose(1, 2)))
    parents = (ancestors * (nodes + 1)).amax(-1) - 1
    retrive_next_sibling.view(bs, n).copy_(_next_sibling(parents, nodes))
