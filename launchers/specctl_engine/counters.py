"""Counters by mode, moved every round, exported at SGLang's /metrics and in the read-back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specctl_engine.modes import CAUSES, EngineMode

ROUND_SECONDS = (
    0.001, 0.0015, 0.002, 0.003, 0.004, 0.006, 0.008, 0.011, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.2, 0.4, 1.0, 4.0,
)  # fmt: skip


def batch_bucket(size: int) -> int:
    """The power of two at or above `size`: 1, 2, 4, 8 ..."""
    return 1 << max(0, size - 1).bit_length()


@dataclass(slots=True)
class ModeTotals:
    rounds: int = 0
    request_rounds: int = 0
    committed_tokens: int = 0
    drafted_tokens: int = 0


class Counters:
    """Counters of one scheduler process. Labels carry the rank: sum over dp_rank, never over tp_rank."""

    def __init__(self, modes: Sequence[EngineMode], tp_rank: int, dp_rank: int) -> None:
        # prometheus_client decides at import whether it writes to the folder that all processes of the server share.
        from prometheus_client import Counter, Gauge, Histogram

        rank = {"tp_rank": str(tp_rank), "dp_rank": str(dp_rank)}
        names = list(rank)
        self.totals = {mode.name: ModeTotals() for mode in modes}
        self._rank = rank
        self._modes = tuple(modes)

        def by_mode(name: str, text: str) -> list[Any]:
            counter = Counter(f"specctl_{name}", text, ["mode", *names])
            return [counter.labels(mode=mode.name, **rank) for mode in modes]

        self._rounds = by_mode("rounds", "Verify forwards of the target (in off: plain decodes)")
        self._request_rounds = by_mode("request_rounds", "Rounds times the running requests in them")
        self._committed = by_mode("committed_tokens", "Tokens committed, bonus tokens included")
        self._drafted = by_mode("drafted_tokens", "Draft tokens offered to the verify forward, the root excluded")
        self._flips = Counter("specctl_flips", "Changes of mode", ["from_mode", "to_mode", "cause", *names])
        self._seconds = Histogram(
            "specctl_round_seconds",
            "From one decode round to the next",
            ["mode", "batch_bucket", *names],
            buckets=ROUND_SECONDS,
        )
        self._seconds_of: dict[tuple[int, int], Any] = {}
        active = Gauge("specctl_active_mode", "1 for the live mode", ["mode", *names], multiprocess_mode="mostrecent")
        self._active = [active.labels(mode=mode.name, **rank) for mode in modes]
        epoch = Gauge("specctl_active_epoch", "Epoch of the live mode", names, multiprocess_mode="mostrecent")
        self._epoch = epoch.labels(**rank)
        self._last: tuple[float, int, int] | None = None

    def live(self, mode: EngineMode, epoch: int) -> None:
        for other, gauge in zip(self._modes, self._active, strict=True):
            gauge.set(1.0 if other is mode else 0.0)
        self._epoch.set(epoch)

    def epoch(self, epoch: int) -> None:
        self._epoch.set(epoch)

    def flipped(self, before: EngineMode, after: EngineMode, cause: int) -> None:
        self._flips.labels(from_mode=before.name, to_mode=after.name, cause=CAUSES[cause], **self._rank).inc()

    def round_starts(self, mode: EngineMode, batch_size: int) -> None:
        """Time from the previous round's start, when both rounds had the same mode and batch bucket and nothing between."""
        now = time.perf_counter()
        bucket = batch_bucket(batch_size)
        last, self._last = self._last, (now, mode.id, bucket)
        if last is None or last[1:] != (mode.id, bucket):
            return
        histogram = self._seconds_of.get((mode.id, bucket))
        if histogram is None:
            histogram = self._seconds.labels(mode=mode.name, batch_bucket=str(bucket), **self._rank)
            self._seconds_of[mode.id, bucket] = histogram
        histogram.observe(now - last[0])

    def interrupted(self) -> None:
        """Something that is not a decode round ran, so the next interval is not a round."""
        self._last = None

    def committed(self, mode: EngineMode, accepted: Sequence[int]) -> None:
        """One round's outcome: `accepted` holds the tokens committed for each request that was still running."""
        if not accepted:
            return
        rows, tokens = len(accepted), sum(accepted)
        drafted = rows * (mode.tokens - 1)
        totals = self.totals[mode.name]
        totals.rounds += 1
        totals.request_rounds += rows
        totals.committed_tokens += tokens
        totals.drafted_tokens += drafted
        self._rounds[mode.id].inc()
        self._request_rounds[mode.id].inc(rows)
        self._committed[mode.id].inc(tokens)
        if drafted:
            self._drafted[mode.id].inc(drafted)

    def report(self) -> dict[str, dict[str, int]]:
        return {name: asdict(totals) for name, totals in self.totals.items()}
