"""`python -m specctl.telemetry.gpu_helper`: one JSON line a second about the GPUs, until stdin closes.

A process of its own because NVML can crash the process that calls it when a GPU falls off the bus.
Lines: {"gpus": [...]} or {"error": why}. Ends when the daemon goes away (end of file on stdin).
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from typing import Any

from specctl.telemetry.gpu_query import read_all


def _emit(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _wait(seconds: float) -> bool:
    """False when stdin was closed: the daemon is gone."""
    readable, _, _ = select.select([sys.stdin], [], [], seconds)
    return not (readable and not os.read(sys.stdin.fileno(), 4096))


def main(period_s: float = 1.0) -> int:
    """0 when told to end, 3 when this machine has no NVML, 1 when the driver stopped answering."""
    # It stays in the daemon's session and group: a Ctrl-C there is the daemon's business.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:
        _emit({"error": str(error) or type(error).__name__})
        return 3
    uuids: dict[int, tuple[str, str]] = {}
    while True:
        try:
            _emit({"gpus": list(read_all(pynvml, uuids))})
        except BrokenPipeError:
            return 0
        except Exception as error:
            _emit({"error": str(error)})
            return 1
        if not _wait(period_s):
            return 0


if __name__ == "__main__":
    sys.exit(main())
