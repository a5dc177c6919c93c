"""The console as a real process on a scripted source, for the pty tests and the bench.

usage: pty_child.py [--no-mouse] [--gpus N] [--hung] [--log-lines N]
"""

from __future__ import annotations

import argparse
import asyncio
import math
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import scripted as s

from specctl.core.api import Accepted, LogPage
from specctl.tui import run_source
from specctl.tui.source import Item


@dataclass
class LiveSource(s.ScriptedSource):
    """A snapshot a second, every number moving a little, `log_rate` log lines a second."""

    gpus: int = 8
    log_rate: int = 0
    hung: bool = False

    async def stream(self) -> AsyncIterator[Item]:
        for event in s.events():
            yield event
        seq = 0
        while True:
            yield self._shot(seq)
            seq += 1
            try:
                await asyncio.sleep(3600 if self.hung else 1.0)
            except asyncio.CancelledError:
                if not self.hung:
                    raise
                # What a stuck call does: it does not end when it is told to.
                await asyncio.shield(asyncio.sleep(3600))

    def _shot(self, seq: int) -> s.Snapshot:
        wave = 1 + 0.05 * math.sin(seq / 3) + 0.02 * math.sin(seq * 1.7)
        base = s.snapshot("tree", seq=seq, at=s.NOW + seq)
        gpus = tuple(
            s.gpu(
                i,
                utilization=s.read(round(90 + 8 * math.sin(seq + i)), "%"),
                power=s.read(600 + round(40 * math.sin(seq * 0.7 + i)), "W"),
                temperature=s.read(60 + round(3 * math.sin(seq * 0.1 + i)), "C"),
            )
            for i in range(self.gpus)
        )
        engine = replace(
            base.engine,
            tokens_per_second=s.read(2412 * wave, "tok/s"),
            acceptance_length=s.read(2.61 * (2 + wave) / 3),
            kv_usage=s.read(0.31 + 0.01 * (seq % 7)),
        )
        rows = tuple(
            replace(row, rounds=row.rounds + 40 * seq, committed_tokens=row.committed_tokens + 2400 * seq)
            if row.mode == "tree"
            else row
            for row in base.speculation.by_mode
        )
        return replace(base, gpus=gpus, engine=engine, speculation=replace(base.speculation, by_mode=rows))

    async def logs(self, *, start: int | None = None, tail: int | None = None, limit: int | None = None) -> LogPage:
        count = 30 + int((time.monotonic() - STARTED) * self.log_rate)
        self.lines = s.log_lines(count)
        return await super().logs(start=start, tail=tail, limit=limit)

    async def _answer(self, name: str, value: str = "") -> Accepted:
        if self.hung:
            await asyncio.sleep(3600)
        return await super()._answer(name, value)


STARTED = time.monotonic()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-mouse", action="store_true")
    parser.add_argument("--hung", action="store_true")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--log-rate", type=int, default=0)
    args = parser.parse_args()
    source = LiveSource(points=s.history(), gpus=args.gpus, log_rate=args.log_rate, hung=args.hung)
    return run_source(source, Path("/run/specctld.sock"), mouse=not args.no_mouse)


if __name__ == "__main__":
    raise SystemExit(main())
