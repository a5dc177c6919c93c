"""How a batch is cut into groups that attention computes at once, and what each token of it sees.

A plan depends on integers and tree masks alone, so it is remembered by them: the layers of one forward pass share it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

# Longest extend that is batched with others. Beyond it a request's own work outweighs the calls that batching saves,
# and the mask, which folding repeats for every query head, would grow large.
_BATCHED_EXTEND = 32
_SHORTEST_PAD = 64
_ZERO, _HIDDEN = torch.tensor(0.0), torch.tensor(float("-inf"))


class Layout(NamedTuple):
    """Where a batch's tokens are: for every request its length, how many of its last tokens are new, where they start.

    `causal` says that a token sees none behind it, `window` (0: none) that it sees only so many, itself included.
    """

    lengths: tuple[int, ...]
    counts: tuple[int, ...]
    starts: tuple[int, ...]
    causal: bool
    window: int


@dataclass(frozen=True, slots=True)
class Group:
    """Requests with the same number of new tokens and the same padded length.

    `rows` [requests] are their places in the batch and `tokens` [requests * n] those of their tokens, None where they
    are the whole batch in order. `valid` bool [requests, keys] tells keys from padding. `mask` [requests, 1, heads * n,
    keys] is added to scores: heads that share a KV head are folded into the query length (n is 1: one line serves all
    heads).
    """

    n: int
    rows: Tensor | None
    tokens: Tensor | None
    valid: Tensor
    mask: Tensor


@dataclass(frozen=True, slots=True)
class Plan:
    """Groups, and the requests that are computed alone: place in the batch and tree mask [n, n] or None."""

    groups: tuple[Group, ...]
    long: tuple[tuple[int, Tensor | None], ...]


def padded_length(length: int) -> int:
    """Keys that a row of `length` keys is padded to: 64, 96, 128, 192, 256, 384 ... so at most half of them more."""
    if length <= _SHORTEST_PAD:
        return _SHORTEST_PAD
    power: int = 1 << (length - 1).bit_length()
    return power * 3 // 4 if length <= power * 3 // 4 else power


# Layers follow one another with the same batch, so the last few plans are enough.
@lru_cache(maxsize=4)
def plan(layout: Layout, width: int, heads: int, dtype: torch.dtype, trees: bytes | None) -> Plan:
    """Groups of a batch.

    Args:
        layout: the batch; requests without tokens or without new ones are left out.
        width: keys that a row of the slot table holds, the limit of padding.
        heads: query heads that share a KV head.
        dtype: type of the queries, which the masks must have.
        trees: the requests' tree masks, n * n bytes each, or None.
    """
    squares = [n * n for n in layout.counts]
    starts = list(accumulate(squares, initial=0))
    masks: dict[int, Tensor] = {}
    if trees:
        flat = torch.frombuffer(bytearray(trees), dtype=torch.bool)
        masks = {row: flat[starts[row] : starts[row + 1]].view(n, n) for row, n in enumerate(layout.counts) if n > 0}
    members: dict[tuple[int, int], list[int]] = defaultdict(list)
    long: list[tuple[int, Tensor | None]] = []
    for row, (length, n) in enumerate(zip(layout.lengths, layout.counts, strict=True)):
        if n > _BATCHED_EXTEND:
            long.append((row, masks.get(row)))
        elif n > 0 and length > 0:
            members[n, min(padded_length(length), width)].append(row)
    groups = tuple(_group(layout, n, pad, rows, masks, heads, dtype) for (n, pad), rows in members.items())
    return Plan(groups, tuple(long))


def _group(
    layout: Layout, n: int, pad: int, rows: list[int], masks: dict[int, Tensor], heads: int, dtype: torch.dtype
) -> Group:
    lengths = torch.tensor([layout.lengths[row] for row in rows])
    tokens = [layout.starts[row] + i for row in rows for i in range(n)]
    whole = tokens == list(range(sum(layout.counts)))
    trees = torch.stack([masks[row] for row in rows]) if masks else None
    valid = torch.arange(pad) < lengths.unsqueeze(1)
    if n == 1 and layout.causal and layout.window <= 0:
        visible = valid.unsqueeze(1)
    else:
        visible = _visible(layout, lengths, n, pad, trees).repeat(1, heads if n > 1 else 1, 1)
    return Group(
        n,
        None if len(rows) == len(layout.lengths) else torch.tensor(rows),
        None if whole else torch.tensor(tokens),
        valid,
        _added(visible, dtype).unsqueeze(1),
    )


def _visible(layout: Layout, lengths: Tensor, n: int, width: int, trees: Tensor | None) -> Tensor:
    """Keys that the last n tokens of requests of these lengths see, bool [requests, n, width]."""
    keys = torch.arange(width)
    ends = lengths.view(-1, 1, 1)
    positions = ends - n + torch.arange(n).view(-1, 1)
    visible = keys <= positions if layout.causal else (keys < ends).expand(-1, n, -1)
    if trees is not None:
        columns = (ends - n + torch.arange(n)).expand(-1, n, -1)
        visible = (keys < ends - n).repeat(1, n, 1).scatter_(2, columns, trees)
    return visible & (keys > positions - layout.window) if layout.window > 0 else visible


def _added(visible: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.where(visible, _ZERO, _HIDDEN).to(dtype)


def mask_of(layout: Layout, row: int, tree: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Mask [n, length] of one request, to be added to its scores."""
    lengths = torch.tensor([layout.lengths[row]])
    trees = None if tree is None else tree.unsqueeze(0)
    return _added(_visible(layout, lengths, layout.counts[row], layout.lengths[row], trees), dtype)[0]
