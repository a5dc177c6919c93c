"""Positions of the target whose draft KV has not been written yet, a few per request.

While speculation is off the draft model does not run. What it will need (the token at the next position and the target's
hidden states) waits here, and one draft-extend as wide as the tree writes up to `width` positions of every request at once.
"""

from __future__ import annotations

from typing import NamedTuple

import torch


class Taken(NamedTuple):
    """counts_host, counts: [n] on the host and on the device. tokens: [n * width]. hidden: [n * width, hidden]."""

    counts_host: torch.Tensor
    counts: torch.Tensor
    tokens: torch.Tensor
    hidden: torch.Tensor


class PendingPositions:
    """One short queue a row of the request pool.

    counts: [rows], kept on the host and where the model lives, so that neither has to wait for the other: a row gains
    exactly one position a round. tokens: [rows, width]; hidden: [rows, width, hidden].
    """

    def __init__(self, rows: int, width: int, hidden: int, dtype: torch.dtype, device: str) -> None:
        self.width = width
        self.rounds = 0
        self.counts = torch.zeros(rows, dtype=torch.int64)
        self._at = torch.zeros(rows, dtype=torch.int64, device=device)
        self._tokens = torch.zeros((rows, width), dtype=torch.int32, device=device)
        self._hidden = torch.zeros((rows, width, hidden), dtype=dtype, device=device)

    @property
    def bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in (self._at, self._tokens, self._hidden))

    @property
    def is_full(self) -> bool:
        """A row that has been off since the last settling holds `width` positions, so no further one fits."""
        return self.rounds >= self.width

    def of_row(self, row: int) -> int:
        return int(self.counts[row])

    def forget(self, rows_host: torch.Tensor, rows: torch.Tensor) -> None:
        """These rows were given to new requests, whose prefill has written their draft KV."""
        if self.rounds:
            self.counts[rows_host] = 0
            self._at[rows] = 0

    def push(self, rows_host: torch.Tensor, rows: torch.Tensor, tokens: torch.Tensor, hidden: torch.Tensor) -> None:
        """One position for every row. tokens: [n] at the next position; hidden: [n, hidden] of the target at this one."""
        at = self._at[rows]
        self._tokens[rows, at] = tokens
        self._hidden[rows, at] = hidden
        self._at[rows] = at + 1
        self.counts[rows_host] += 1
        self.rounds += 1

    def take(self, rows_host: torch.Tensor, rows: torch.Tensor) -> Taken:
        """What is pending of these rows; afterwards nothing is pending of any.

        Every running request is in every decode batch, so rows outside it belong to requests that ended.
        """
        taken = Taken(
            self.counts[rows_host], self._at[rows], self._tokens[rows].flatten(), self._hidden[rows].flatten(0, 1)
        )
        self.counts.zero_()
        self._at.zero_()
        self.rounds = 0
        return taken
