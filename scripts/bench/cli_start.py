#!/usr/bin/env python3
"""How long whole `specctl` processes take, from fork to exit. Budget: `status` and `mode` 150 ms (docs/design.md, 10).

Needs a running daemon for the budgeted commands (without one they end with exit code 3, and that is timed). CPU time is
printed beside wall time: on a busy machine wall time says more about the neighbours.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = (["status"], ["status", "--json"], ["mode"], ["version"], ["--help"])


def measure(argv: list[str], runs: int) -> tuple[list[float], list[float], int]:
    """Wall and CPU milliseconds of each run, and the last exit code."""
    wall, cpu, code = [], [], 0
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.perf_counter()
        code = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode
        wall.append((time.perf_counter() - started) * 1e3)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3)
    return wall, cpu, code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="runs of each command")
    parser.add_argument("--specctl", default=str(Path(sys.executable).with_name("specctl")))
    parser.add_argument("command", nargs="*", help="one command to time instead of the usual ones")
    options = parser.parse_args()
    print(
        f"{'command':<24}{'wall min':>10}{'median':>10}{'cpu min':>10}{'median':>10}  exit   (ms, {options.runs} runs)"
    )
    bare = ("python -c pass", [sys.executable, "-c", "pass"])
    rows = [options.command] if options.command else COMMANDS
    for label, argv in [bare, *((f"specctl {' '.join(words)}", [options.specctl, *words]) for words in rows)]:
        wall, cpu, code = measure(argv, options.runs)
        print(
            f"{label:<24}{min(wall):>10.0f}{statistics.median(wall):>10.0f}"
            f"{min(cpu):>10.0f}{statistics.median(cpu):>10.0f}  {code:>4}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
