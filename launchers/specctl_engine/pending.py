"""Positions of the target whose draft KV has not been written yet, a few per request.

While speculation is off the draft model does not run. What it will need (the token at the next position and the target's
hidden states) waits here, and one draft-extend as wide as the tree writes up to `width` positions of every request at once.
"""

from __future__ import annotations

import torch


class PendingPositions:
    """One short queue a row of the request pool.

    counts: [rows] on the host, so that nothing has to be read from the device: a row gains exactly one position a round.
    tokens: [rows, width]; hidden: [rows, width, hidden]. Both live where the model does.
    """

    def __init__(self, rows: int, width: int, hidden: int, dtype: torch.dtype, device: str) -> None:
        self.width = width
        self.rounds = 0
        self.counts = torch.zeros(rows, dtype=torch.int64)
        self._at = torch.zeros(rows, dtype=torch.int64, device=device)
        self._tokens = torch.zeros((rows, width), dtype=torch.int64, device=device)
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
        self._tokens[rows, at] = tokens.to(torch.int64)
        self._hidden[rows, at] = hidden
        self._at[rows] = at + 1
        self.counts[rows_host] += 1
        self.rounds += 1

    def take(self, rows_host: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Counts [n] (host), tokens [n * width] and hidden [n * width, hidden] of these rows; afterwards nothing is pending.

        Every running request is in every decode batch, so rows outside it belong to requests that ended.
        """
        counts = self.counts[rows_host]
        tokens, hidden = self._tokens[rows].flatten(), self._hidden[rows].flatten(0, 1)
        self.counts.zero_()
        self._at.zero_()
        self.rounds = 0
        return counts, tokens, hidden
