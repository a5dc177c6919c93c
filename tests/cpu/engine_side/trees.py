"""Random draft trees the way sglang's draft loop makes them, and slow, obvious versions of the tree operators."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from hypothesis import strategies as st


@dataclass
class Draft:
    """Inputs of the tree operators for a batch."""

    parent_list: torch.Tensor
    selected: torch.Tensor
    seq_lens: torch.Tensor
    topk: int
    depth: int
    n: int


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    """EAGLE's draft loop with random probabilities: scores fall along a branch, so the best ones form a tree."""
    bs = draw(st.integers(1, 16))
    topk = draw(st.integers(1, 5))
    depth = draw(st.integers(1, 5))
    most = topk + (depth - 1) * topk * topk
    n = draw(st.integers(2, min(most, 20) + 1))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    scores = [torch.rand(bs, 1, topk, generator=generator)]
    frontier = scores[0].squeeze(1)
    parents = [torch.arange(-1, topk).repeat(bs, 1)]
    for step in range(1, depth):
        expanded = frontier.unsqueeze(2) * torch.rand(bs, topk, topk, generator=generator)
        best = expanded.flatten(1).topk(topk, dim=-1)
        scores.append(expanded)
        parents.append(best.indices + topk * topk * (step - 1) + topk)
        frontier = best.values
    flat = torch.cat(scores, dim=1).flatten(1)
    selected = flat.topk(n - 1, dim=-1).indices.sort().values
    parent_list = torch.cat(parents[:-1], dim=1) if depth > 1 else torch.empty(bs, 0, dtype=torch.long)
    seq_lens = torch.randint(1, 40, (bs,), generator=generator)
    return Draft(parent_list, selected, seq_lens, topk, depth, n)


def parents_of(selected: list[int], parent_list: list[int], topk: int) -> list[int | None]:
    """Parent of each node; None for the root and where the parent was not selected."""
    result: list[int | None] = [None]
    for candidate in selected:
        group = candidate // topk
        if group == 0:
            result.append(0)
        elif parent_list[group] in selected:
            result.append(selected.index(parent_list[group]) + 1)
        else:
            result.append(None)
    return result


def path_to_root(node: int, parents: list[int | None]) -> list[int]:
    """The node and its ancestors below the root."""
    path = []
    while node:
        path.append(node)
        node = parents[node] or 0
    return path


def links_of(parents: list[int | None]) -> tuple[list[int], list[int]]:
    """First child and next sibling of each node, -1 for none."""
    n = len(parents)
    child, sibling = [-1] * n, [-1] * n
    for node in range(n):
        children = [k for k in range(n) if parents[k] == node and k != 0]
        if children:
            child[node] = children[0]
        for a, b in pairwise(children):
            sibling[a] = b
    return child, sibling
