"""The daemon's side of the GPU helper process: starts it, reads it, starts it again, never waits for it."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from specctl.core.snapshot import Gpu, GpuProcess, Reading

NO_NVML_EXIT = 3
SILENT_AFTER_S = 10.0
BACKOFF_CAP_S = 60.0
_UNITS = {
    "utilization": "%",
    "memory_used": "B",
    "memory_total": "B",
    "power": "W",
    "power_limit": "W",
    "temperature": "C",
    "sm_clock": "MHz",
}


class GpuMonitor:
    """`gpus(now)` and `note` are always there at once; `run` keeps them fresh."""

    def __init__(self, command: Sequence[str] | None = None) -> None:
        self._command = list(command or (sys.executable, "-m", "specctl.telemetry.gpu_helper"))
        self._rows: list[dict[str, Any]] = []
        self._at = 0.0
        self.note: str | None = "no NVML: not asked yet"
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.returncode is None else None

    async def run(self) -> None:
        """Until cancelled. Without NVML it asks again every minute: a driver may come back."""
        delay = 1.0
        while True:
            started = time.monotonic()
            try:
                code = await self._session()
            except OSError as error:
                code, self.note = 1, f"no NVML: the helper cannot start: {error}"
            delay = 1.0 if time.monotonic() - started > BACKOFF_CAP_S else min(BACKOFF_CAP_S, delay * 2)
            await asyncio.sleep(BACKOFF_CAP_S if code == NO_NVML_EXIT else delay)

    async def _session(self) -> int:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=1 << 20,
        )
        self._process = process
        assert process.stdout is not None
        try:
            while line := await asyncio.wait_for(process.stdout.readline(), SILENT_AFTER_S):
                self._take(line)
            code = await process.wait()
            if code not in (0, NO_NVML_EXIT):
                self.note = f"the GPU helper ended with {code}; it is started again"
        except TimeoutError:
            self.note = f"NVML has not answered for {SILENT_AFTER_S:.0f} s; the GPU helper is started again"
            code = 1
        except ValueError as error:
            self.note, code = f"the GPU helper says what cannot be read: {error}", 1
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        return code

    def _take(self, line: bytes) -> None:
        message = json.loads(line)
        if error := message.get("error"):
            self._rows, self.note = [], f"no NVML: {error}"
            return
        self._rows, self._at = message["gpus"], time.time()
        self.note = None if self._rows else "no GPU on this machine"

    def gpus(self, now: float, ours: Container[int] = ()) -> tuple[Gpu, ...]:
        """The newest rows with their age; `ours`: pids of the server's processes."""
        age = max(0.0, now - self._at)
        return tuple(_gpu(row, age, ours) for row in self._rows)


def _gpu(row: dict[str, Any], age: float, ours: Container[int]) -> Gpu:
    bare = Gpu(index=row["index"], uuid=row["uuid"], name=row["name"], lost=row.get("lost"))
    if bare.lost:
        return bare
    readings = {name: _reading(row[name], unit, age) for name, unit in _UNITS.items()}
    processes = tuple(
        GpuProcess(pid=p["pid"], memory_bytes=p["memory_bytes"], ours=p["pid"] in ours) for p in row["processes"]
    )
    return replace(bare, **readings, throttle=tuple(row["throttle"]), processes=processes)  # type: ignore[arg-type]


def _reading(field: dict[str, Any], unit: str, age: float) -> Reading:
    value = field["value"]
    return Reading(value=value, unit=unit, age=None if value is None else age, source="NVML", note=field["note"])
