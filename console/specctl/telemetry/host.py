"""Host readings: processor, memory, and the memory of the server's processes."""

from __future__ import annotations

from collections.abc import Iterable

import psutil  # type: ignore[import-untyped, unused-ignore]

from specctl.core.snapshot import HostNumbers, Reading


def _read(value: float | None, unit: str, source: str) -> Reading:
    return Reading(value=value, unit=unit, age=0.0 if value is not None else None, source=source)


def server_memory(pids: Iterable[int]) -> float | None:
    """Bytes of resident memory of these processes; shared pages count in each. None without a living one."""
    total, found = 0, False
    for pid in pids:
        try:
            total += psutil.Process(pid).memory_info().rss
            found = True
        except psutil.Error:
            continue
    return float(total) if found else None


class HostMonitor:
    """Call `sample` once a second: processor use is measured between two calls."""

    def __init__(self) -> None:
        psutil.cpu_percent()
        self._calls = 0

    def sample(self, pids: Iterable[int] = ()) -> HostNumbers:
        self._calls += 1
        memory = psutil.virtual_memory()
        return HostNumbers(
            cpu_percent=_read(psutil.cpu_percent(), "%", "/proc/stat"),
            memory_used=_read(float(memory.total - memory.available), "B", "/proc/meminfo"),
            memory_total=_read(float(memory.total), "B", "/proc/meminfo"),
            server_memory=_read(server_memory(pids), "B", "/proc/PID/statm"),
        )
