"""Counters to rates and histograms to quantiles, over a window. Pure: time comes in as an argument."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

WINDOW_S = 5.0
_INFINITY = float("inf")


@dataclass(slots=True)
class CounterWindow:
    """The samples of one counter in the last `window_s` seconds.

    A value below the one before means that the process started again: what came before is forgotten.
    """

    window_s: float = WINDOW_S
    resets: int = 0
    moved_at: float | None = None
    _samples: deque[tuple[float, float]] = field(default_factory=deque)

    def add(self, at: float, value: float | None) -> None:
        """Adds a sample; None (not exported) empties the window: an unknown counter has no rate."""
        if value is None:
            self.clear()
            return
        if self._samples:
            last_at, last = self._samples[-1]
            if at <= last_at:
                return
            if value < last:
                self.resets += 1
                self._samples.clear()
            elif value > last:
                self.moved_at = at
        self._samples.append((at, value))
        # The newest sample that is older than the window stays: the delta then spans the whole window.
        while len(self._samples) > 2 and self._samples[1][0] <= at - self.window_s:
            self._samples.popleft()

    def clear(self) -> None:
        self._samples.clear()
        self.moved_at = None

    def restart(self) -> None:
        """Only the newest sample stays: what grows from now on is measured from it."""
        while len(self._samples) > 1:
            self._samples.popleft()

    @property
    def delta(self) -> float | None:
        """Growth over the window, or None with fewer than two samples."""
        if len(self._samples) < 2:
            return None
        return self._samples[-1][1] - self._samples[0][1]

    @property
    def seconds(self) -> float | None:
        if len(self._samples) < 2:
            return None
        return self._samples[-1][0] - self._samples[0][0]

    @property
    def last_at(self) -> float | None:
        return self._samples[-1][0] if self._samples else None

    def frozen_polls(self) -> int:
        """How many of the newest samples in a row did not grow."""
        count, samples = 0, list(self._samples)
        for (_, before), (_, after) in zip(reversed(samples[:-1]), reversed(samples[1:]), strict=True):
            if after != before:
                break
            count += 1
        return count

    def rate(self, *, idle: bool = False) -> float | None:
        """Growth per second. When the server is idle and one poll saw no growth, 0 at once and not after the window."""
        delta, seconds = self.delta, self.seconds
        if delta is None or not seconds:
            return None
        if idle and self.frozen_polls() >= 1:
            return 0.0
        return delta / seconds


@dataclass(slots=True)
class HistogramWindow:
    """Cumulative bucket counts (`le` -> count) over a window."""

    window_s: float = WINDOW_S
    _samples: deque[tuple[float, dict[float, float]]] = field(default_factory=deque)

    def add(self, at: float, buckets: Mapping[float, float] | None) -> None:
        if not buckets:
            self._samples.clear()
            return
        if self._samples:
            last_at, last = self._samples[-1]
            if at <= last_at:
                return
            if buckets.get(_INFINITY, 0.0) < last.get(_INFINITY, 0.0):
                self._samples.clear()
        self._samples.append((at, dict(buckets)))
        while len(self._samples) > 2 and self._samples[1][0] <= at - self.window_s:
            self._samples.popleft()

    def quantile(self, q: float) -> float | None:
        """The q-quantile of what was observed in the window, linear inside its bucket; None when nothing was.

        In the last bucket (no upper bound) the answer is its lower bound, the most that is known.
        """
        if len(self._samples) < 2:
            return None
        first, last = self._samples[0][1], self._samples[-1][1]
        bounds = sorted(last)
        grown = [last[bound] - first.get(bound, 0.0) for bound in bounds]
        total = grown[-1]
        if total <= 0:
            return None
        rank, lower, below = q * total, 0.0, 0.0
        for bound, count in zip(bounds, grown, strict=True):
            if count >= rank and count > below:
                if bound == _INFINITY:
                    return lower
                return lower + (bound - lower) * (rank - below) / (count - below)
            if bound != _INFINITY:
                lower, below = bound, max(below, count)
        return lower
