"""GPU readings: fields and devices fail alone, and the helper process may die as it likes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from specctl.telemetry import gpu
from specctl.telemetry.gpu import GpuMonitor
from specctl.telemetry.gpu_query import read_all


class NVMLError(Exception):
    pass


class FakeNvml:
    """Eight GPUs. `broken`: function name, or (function name, index) -> error text."""

    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM = 0, 1
    nvmlClocksEventReasonSwPowerCap = 4  # noqa: N815 - NVML's own name
    nvmlMemory_v2 = 2  # noqa: N815 - NVML's own name

    def __init__(self, broken: dict[Any, str] | None = None) -> None:
        self.broken = broken or {}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvmlDevice"):
            raise AttributeError(name)
        return lambda *args: self._ask(name, *args)

    def _ask(self, name: str, handle: Any = None, *args: Any) -> Any:
        for key in (name, (name, handle)):
            if key in self.broken:
                raise NVMLError(self.broken[key])
        answers = {
            "nvmlDeviceGetCount": 8,
            "nvmlDeviceGetHandleByIndex": handle,
            "nvmlDeviceGetUUID": f"GPU-{handle}",
            "nvmlDeviceGetName": b"H200",
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=50, memory=10),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=1000 if args else 1500, total=8000),
            "nvmlDeviceGetPowerUsage": 350_000,
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            "nvmlDeviceGetTemperature": 60,
            "nvmlDeviceGetClockInfo": 1980,
            "nvmlDeviceGetCurrentClocksEventReasons": 4,
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=77, usedGpuMemory=900)],
        }
        return answers[name]


def rows(nvml: FakeNvml, uuids: dict | None = None):
    monitor = GpuMonitor()
    monitor._take(json.dumps({"gpus": list(read_all(nvml, {} if uuids is None else uuids))}).encode())
    return monitor.gpus(time.time(), ours={77})


def test_all_fields_of_a_healthy_gpu() -> None:
    one = rows(FakeNvml())[3]
    assert (one.index, one.uuid, one.name) == (3, "GPU-3", "H200")
    assert (one.utilization.value, one.memory_used.value, one.memory_total.value) == (50, 1000, 8000)
    assert (one.power.value, one.power_limit.value) == (350, 700)
    assert (one.temperature.value, one.sm_clock.value) == (60, 1980)
    assert one.throttle == ("power cap",)
    assert one.processes[0].ours


def test_lost_gpu_leaves_seven_rows_fine_and_keeps_its_name() -> None:
    uuids: dict = {}
    rows(FakeNvml(), uuids)
    found = rows(FakeNvml({("nvmlDeviceGetHandleByIndex", 3): "GPU is lost"}), uuids)
    assert (found[3].uuid, found[3].lost) == ("GPU-3", "GPU is lost")
    assert found[3].utilization.value is None
    assert all(g.lost is None and g.utilization.value == 50 for g in found if g.index != 3)


def test_unsupported_field_is_unknown_never_zero() -> None:
    found = rows(FakeNvml({"nvmlDeviceGetUtilizationRates": "Not Supported"}))
    assert found[0].utilization.value is None
    assert found[0].utilization.note == "Not Supported"
    assert found[0].memory_used.value == 1000


def test_old_driver_without_the_second_memory_structure() -> None:
    nvml = FakeNvml()
    nvml.nvmlMemory_v2 = None
    assert rows(nvml)[0].memory_used.value == 1500


def helper(code: str) -> list[str]:
    return [sys.executable, "-c", code]


async def until(condition, what: str) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)


ROW = json.dumps({"gpus": list(read_all(FakeNvml(), {}))[:1]})
STEADY = f"import time\nwhile True: print({ROW!r}, flush=True); time.sleep(0.1)"


async def test_no_nvml_is_a_note_and_no_rows() -> None:
    monitor = GpuMonitor(helper('print(\'{"error": "NVML Shared Library Not Found"}\'); raise SystemExit(3)'))
    task = asyncio.create_task(monitor.run())
    await until(lambda: "Not Found" in (monitor.note or ""), "note")
    assert monitor.note == "no NVML: NVML Shared Library Not Found"
    assert monitor.gpus(time.time()) == ()
    task.cancel()


async def test_real_helper_says_why_there_is_no_gpu_or_shows_them() -> None:
    monitor = GpuMonitor()
    task = asyncio.create_task(monitor.run())
    await until(lambda: monitor.note != "no NVML: not asked yet", "first line")
    assert monitor.gpus(time.time()) or monitor.note
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert monitor.pid is None


async def test_killed_helper_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = GpuMonitor(helper(STEADY))
    task = asyncio.create_task(monitor.run())
    await until(lambda: monitor.gpus(time.time()), "rows")
    first = monitor.pid
    os.kill(first, signal.SIGSEGV)
    await until(lambda: monitor.pid not in (None, first), "second helper")
    await until(lambda: monitor.note is None and monitor.gpus(time.time())[0].utilization.age < 1, "fresh rows")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_helper_that_hangs_is_replaced_and_its_numbers_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "SILENT_AFTER_S", 4.0)
    monitor = GpuMonitor(helper(f"import time\nprint({ROW!r}, flush=True); time.sleep(600)"))
    task = asyncio.create_task(monitor.run())
    await until(lambda: monitor.gpus(time.time()), "rows")
    await until(lambda: "has not answered" in (monitor.note or ""), "note")
    age = monitor.gpus(time.time())[0].utilization.age
    assert age is not None
    assert age >= 4.0
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_helper_that_talks_nonsense_takes_nobody_down() -> None:
    monitor = GpuMonitor(helper("print('Segmentation fault')"))
    task = asyncio.create_task(monitor.run())
    await until(lambda: "cannot be read" in (monitor.note or ""), "note")
    assert not task.done()
    task.cancel()
