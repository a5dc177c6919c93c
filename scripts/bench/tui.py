#!/usr/bin/env python3
"""What the console costs: first paint, bytes a second to the terminal, share of a core.

    scripts/bench/tui.py [--seconds 30] [--gpus 8] [--size 80x24 160x48] [--log-rate 0] [--json]

A real process in a real pseudo-terminal on a scripted source: a snapshot a second in which every number moves.
Prints numbers and compares nothing; the budgets are in docs/design.md. Needs the `dev` extra.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TESTS = ROOT / "tests" / "tui"
sys.path.insert(0, str(TESTS))

import psutil  # noqa: E402
from terminal import PtyProcess  # noqa: E402

ENV = {
    "PATH": os.environ["PATH"],
    "TERM": "xterm-256color",
    "COLORTERM": "truecolor",
    "LANG": "C.UTF-8",
    "HOME": "/nonexistent",
}


def start(args: argparse.Namespace, size: tuple[int, int]) -> PtyProcess:
    argv = [sys.executable, str(TESTS / "pty_child.py"), "--gpus", str(args.gpus), "--log-rate", str(args.log_rate)]
    return PtyProcess(argv, ENV, size)


def first_paint(args: argparse.Namespace, size: tuple[int, int]) -> dict[str, float]:
    """Milliseconds from the start of the process until anything, and until the numbers, are on the screen."""
    walls, cpus = [], []
    for _ in range(args.starts):
        process = start(args, size)
        process.until(lambda p=process: "2,412" in p.text or "TREE" in p.text)
        walls.append((time.monotonic() - process.started) * 1000)
        times = psutil.Process(process.process.pid).cpu_times()
        cpus.append((times.user + times.system) * 1000)
        process.send(b"q")
        process.wait()
        process.close()
    return {
        "first_paint_ms": round(min(walls)),
        "first_paint_median_ms": round(statistics.median(walls)),
        "first_paint_cpu_ms": round(min(cpus)),
    }


def steady(args: argparse.Namespace, size: tuple[int, int]) -> dict[str, float]:
    process = start(args, size)
    process.until(lambda: "TREE" in process.text)
    process.pump(3)
    handle = psutil.Process(process.process.pid)
    before = handle.cpu_times()
    begin = time.monotonic()
    size_ = len(process.pump(args.seconds))
    spent = time.monotonic() - begin
    after = handle.cpu_times()
    cpu = (after.user + after.system) - (before.user + before.system)
    memory = handle.memory_info().rss
    leaving = time.monotonic()
    process.send(b"q")
    process.wait()
    quit_ms = (time.monotonic() - leaving) * 1000
    process.close()
    return {
        "bytes_per_s": round(size_ / spent),
        "core_percent": round(100 * cpu / spent, 2),
        "rss_mib": round(memory / 2**20, 1),
        "quit_ms": round(quit_ms),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--log-rate", type=int, default=0, help="log lines a second of the scripted server")
    parser.add_argument("--size", nargs="*", default=["80x24", "160x48"])
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    for text in args.size:
        width, height = (int(n) for n in text.split("x"))
        size = (width, height)
        row = {
            "size": text,
            "gpus": args.gpus,
            "log_rate": args.log_rate,
            **first_paint(args, size),
            **steady(args, size),
        }
        print(json.dumps(row) if args.json else "  ".join(f"{k}={v}" for k, v in row.items()), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
