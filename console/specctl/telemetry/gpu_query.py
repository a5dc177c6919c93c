"""NVML questions. Every one goes through `query`, and every field fails alone. Runs in the GPU helper process only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

THROTTLE_BITS = {
    "power cap": "nvmlClocksEventReasonSwPowerCap",
    "hardware slowdown": "nvmlClocksThrottleReasonHwSlowdown",
    "thermal": "nvmlClocksEventReasonSwThermalSlowdown",
    "hardware thermal": "nvmlClocksThrottleReasonHwThermalSlowdown",
    "power brake": "nvmlClocksThrottleReasonHwPowerBrakeSlowdown",
    "sync boost": "nvmlClocksEventReasonSyncBoost",
}
Field = dict[str, Any]


def query(ask: Callable[..., Any], *args: Any) -> tuple[Any, str | None]:
    """(value, None) or (None, why). The one place where NVML can fail; "Not Supported" is an answer, not a 0."""
    try:
        return ask(*args), None
    except Exception as error:
        return None, str(error) or type(error).__name__


def _field(value: Any, why: str | None, scale: float = 1.0) -> Field:
    return {"value": None if value is None else float(value) * scale, "note": why}


def _memory(nvml: Any, handle: Any) -> tuple[Any, str | None]:
    """The v2 structure counts what the driver reserves apart, as nvidia-smi does; v1 adds it to what is used."""
    version = getattr(nvml, "nvmlMemory_v2", None)
    if version is not None:
        memory, why = query(nvml.nvmlDeviceGetMemoryInfo, handle, version)
        if why is None:
            return memory, None
    return query(nvml.nvmlDeviceGetMemoryInfo, handle)


def _processes(nvml: Any, handle: Any) -> list[Field]:
    found, _ = query(nvml.nvmlDeviceGetComputeRunningProcesses, handle)
    return [{"pid": int(p.pid), "memory_bytes": p.usedGpuMemory} for p in found or ()]


def _throttle(nvml: Any, handle: Any) -> list[str]:
    ask = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or getattr(
        nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None
    )
    if ask is None:
        return []
    bits, _ = query(ask, handle)
    return [name for name, constant in THROTTLE_BITS.items() if int(bits or 0) & int(getattr(nvml, constant, 0))]


def read_gpu(nvml: Any, index: int, uuids: dict[int, tuple[str, str]]) -> Field:
    """One GPU as a JSON object. `uuids` remembers (uuid, name) by index, to name a device that stops answering."""
    handle, why = query(nvml.nvmlDeviceGetHandleByIndex, index)
    if why is not None:
        uuid, name = uuids.get(index, (f"index-{index}", "GPU"))
        return {"index": index, "uuid": uuid, "name": name, "lost": why}
    uuid, uuid_why = query(nvml.nvmlDeviceGetUUID, handle)
    name, _ = query(nvml.nvmlDeviceGetName, handle)
    if uuid_why is not None and index in uuids:
        return {"index": index, "uuid": uuids[index][0], "name": uuids[index][1], "lost": uuid_why}
    uuids[index] = (_text(uuid) or f"index-{index}", _text(name) or "GPU")
    utilization, utilization_why = query(nvml.nvmlDeviceGetUtilizationRates, handle)
    memory, memory_why = _memory(nvml, handle)
    return {
        "index": index,
        "uuid": uuids[index][0],
        "name": uuids[index][1],
        "lost": None,
        "utilization": _field(getattr(utilization, "gpu", None), utilization_why),
        "memory_used": _field(getattr(memory, "used", None), memory_why),
        "memory_total": _field(getattr(memory, "total", None), memory_why),
        "power": _field(*query(nvml.nvmlDeviceGetPowerUsage, handle), scale=0.001),
        "power_limit": _field(*query(nvml.nvmlDeviceGetEnforcedPowerLimit, handle), scale=0.001),
        "temperature": _field(*query(nvml.nvmlDeviceGetTemperature, handle, getattr(nvml, "NVML_TEMPERATURE_GPU", 0))),
        "sm_clock": _field(*query(nvml.nvmlDeviceGetClockInfo, handle, getattr(nvml, "NVML_CLOCK_SM", 1))),
        "throttle": _throttle(nvml, handle),
        "processes": _processes(nvml, handle),
    }


def _text(value: Any) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def read_all(nvml: Any, uuids: dict[int, tuple[str, str]]) -> Iterator[Field]:
    """Every GPU; raises the driver's error when even their number is not known."""
    for index in range(int(nvml.nvmlDeviceGetCount())):
        yield read_gpu(nvml, index, uuids)
