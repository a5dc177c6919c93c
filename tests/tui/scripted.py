"""A source that plays a script, and the scenes that the tests and the screenshots show."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from specctl.core.api import Accepted, LogPage
from specctl.core.errors import SpecctlError
from specctl.core.events import Event, EventKind, HistoryPoint, LogLine
from specctl.core.modes import DEFAULT_MODES, Mode
from specctl.core.snapshot import (
    DaemonInfo,
    EngineNumbers,
    Flip,
    Gpu,
    GpuProcess,
    HostNumbers,
    ModeInfo,
    ModeNumbers,
    Reading,
    ServerInfo,
    Snapshot,
    SpeculationInfo,
    StartStep,
)
from specctl.core.states import FlipCause, FlipState, PatchStatus, ServerState, StepStatus
from specctl.tui.source import Item
from specctl.tui.store import LinkLost

# 2026-03-01 14:02:11 UTC; tests run with TZ=UTC.
NOW = 1772373731.0
GIB = 2.0**30


def read(value: float | None, unit: str = "", age: float | None = 0.4, **more: str) -> Reading:
    return Reading(value=value, unit=unit, age=age, source="test", **more)


def gpu(index: int, **changes: object) -> Gpu:
    base = Gpu(
        index=index,
        uuid=f"GPU-{index}",
        name="NVIDIA H200",
        utilization=read(94 - index, "%"),
        memory_used=read((71 + index) * GIB, "B"),
        memory_total=read(140 * GIB, "B"),
        power=read(612 - 3 * index, "W"),
        power_limit=read(700, "W"),
        temperature=read(64 - index, "C"),
        sm_clock=read(1980, "MHz"),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def flip(epoch: int = 41, to_mode: str = "tree", from_mode: str = "chain", **changes: object) -> Flip:
    base = Flip(
        epoch=epoch,
        to_mode=to_mode,
        from_mode=from_mode,
        state=FlipState.CONFIRMED,
        actor="ana",
        reason="ab by hand",
        requested_at=NOW - 720,
        confirmed_at=NOW - 719.96,
        latency_ms=38.2,
        engine_ms=11.6,
        ranks_confirmed=8,
        ranks_total=8,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


LENGTHS = {"tree": 2.61, "chain": 2.2, "off": None}
SPEEDS = {"tree": 2412.0, "chain": 2344.0, "off": 1710.0}


def speculation(
    mode: str | None = "tree", modes: tuple[Mode, ...] = DEFAULT_MODES, **changes: object
) -> SpeculationInfo:
    rows = tuple(
        ModeNumbers(
            mode=name,
            rounds=rounds,
            request_rounds=rounds * 8,
            committed_tokens=tokens,
            drafted_tokens=tokens * 2,
            acceptance_length=read(LENGTHS[name], age=0.5),
            tokens_per_second=read(SPEEDS[name], "tok/s", age=0.5 if name == mode else None),
        )
        for name, rounds, tokens in (
            ("tree", 182_204, 3_804_419),
            ("chain", 151_007, 2_657_723),
            ("off", 9_120, 72_960),
        )
    )
    base = SpeculationInfo(
        patch=PatchStatus.ACTIVE,
        patch_version="0.1.0",
        mode=mode,
        epoch=41,
        cause=FlipCause.OPERATOR,
        actor="ana",
        reason="ab by hand",
        since=NOW - 720,
        last_flip=flip(to_mode=mode or "tree"),
        flips=41,
        ranks=8,
        modes=tuple(ModeInfo(mode=m) for m in modes),
        by_mode=rows,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def engine(mode: str = "tree", age: float = 0.4) -> EngineNumbers:
    length = LENGTHS.get(mode)
    rate = None if length is None else (length - 1) / 2
    return EngineNumbers(
        tokens_per_second=read(SPEEDS.get(mode, 0.0), "tok/s", age),
        acceptance_length=read(length, age=age, note=None if length else "nothing is drafted in off"),  # type: ignore[arg-type]
        acceptance_rate=read(rate, age=age),
        running=read(8, age=age),
        queued=read(0, age=age),
        kv_usage=read(0.31, age=age),
        ttft_p50_ms=read(84, "ms", age),
        ttft_p99_ms=read(210, "ms", age),
        itl_p50_ms=read(8.1, "ms", age),
        itl_p99_ms=read(14.0, "ms", age),
    )


HOST = HostNumbers(
    cpu_percent=read(37, "%"),
    memory_used=read(41 * GIB, "B"),
    memory_total=read(256 * GIB, "B"),
    server_memory=read(3.2 * GIB, "B"),
)


def snapshot(mode: str = "tree", *, gpus: int = 2, seq: int = 1, at: float = NOW, **changes: object) -> Snapshot:
    base = Snapshot(
        seq=seq,
        at=at,
        daemon=DaemonInfo(
            version="0.1.0", pid=4242, host="gpu-box-3", started_at=NOW - 300_000, data_dir="/srv/specctl"
        ),
        server=ServerInfo(
            state=ServerState.READY,
            since=NOW - 273_000,
            profile="eagle3-tree",
            model="meta-llama/Llama-3.1-8B-Instruct",
            draft="lmsys/sglang-EAGLE3-LLaMA3.1-8B",
            url="http://127.0.0.1:30000",
            engine_version="0.5.23",
            run=17,
            pid=5151,
            started_at=NOW - 273_068,
            ready_at=NOW - 273_000,
            max_running_requests=128,
        ),
        speculation=speculation(mode),
        engine=engine(mode),
        gpus=tuple(gpu(i) for i in range(gpus)),
        host=HOST,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def events(mode: str = "tree") -> list[Event]:
    return [
        Event(id=1, at=NOW - 3000, kind=EventKind.STATE, message="READY after 68 s", run=17),
        Event(id=2, at=NOW - 1321, kind=EventKind.NOTE, message="ana: load test at 8 streams begins", run=17),
        Event(
            id=3, at=NOW - 260, kind=EventKind.FLIP, message="", run=17,
            flip=flip(40, "chain", "tree", actor="ana", confirmed_at=NOW - 260, latency_ms=41.0),
        ),
        Event(
            id=4, at=NOW - 120, kind=EventKind.FLIP, message="", run=17,
            flip=flip(41, mode, "chain", confirmed_at=NOW - 120),
        ),
        Event(id=5, at=NOW - 60, kind=EventKind.ALERT, message="GPU 1 throttled: power cap", run=17),
    ]  # fmt: skip


def mode_at(second: float, mode: str = "tree") -> str:
    return "tree" if second < NOW - 260 else "chain" if second < NOW - 120 else mode


def history(mode: str = "tree", seconds: int = 600) -> list[HistoryPoint]:
    points = []
    for i in range(seconds, 0, -1):
        at = NOW - i
        name = mode_at(at, mode)
        wave = 1 + 0.06 * math.sin(i / 9) + 0.03 * math.sin(i / 2.3)
        length = LENGTHS[name]
        missing = 180 <= i < 200
        points.append(
            HistoryPoint(
                at=at,
                mode=None if missing else name,
                tokens_per_second=None if missing else SPEEDS[name] * wave,
                acceptance_length=None if missing or length is None else length * (2 + wave) / 3,
            )
        )
    return points


def log_lines(count: int = 30, run: int = 17) -> list[LogLine]:
    return [
        LogLine(
            run=run,
            number=i,
            text=f"[2026-03-01 14:01:{i % 60:02d} TP0] Decode batch, #running-req: 8, #token: {9000 + i * 37}, "
            f"token usage: 0.31, accept len: 2.61, gen throughput (token/s): {2400 + i % 7:.2f}, #queue-req: 0",
        )
        for i in range(1, count + 1)
    ]


def starting() -> Snapshot:
    steps = (
        StartStep(name="preflight", status=StepStatus.DONE, seconds=0.3, usual_s=0.3, detail="14 checks"),
        StartStep(name="imports", status=StepStatus.DONE, seconds=29.8, usual_s=30.0),
        StartStep(
            name="weights", status=StepStatus.DONE, seconds=6.1, usual_s=7.0, detail="target 15.0 GiB, draft 0.7 GiB"
        ),
        StartStep(
            name="graphs tree",
            status=StepStatus.RUNNING,
            seconds=4.4,
            usual_s=12.0,
            fraction=0.375,
            detail="batch 48 of 128",
        ),
        StartStep(name="graphs chain", usual_s=9.0),
        StartStep(name="graphs off", usual_s=8.0),
        StartStep(name="self-test", usual_s=2.0),
    )
    server = replace(
        snapshot().server, state=ServerState.STARTING, since=NOW - 41, started_at=NOW - 41, ready_at=None, steps=steps
    )
    spec = SpeculationInfo(modes=tuple(ModeInfo(mode=m) for m in DEFAULT_MODES))
    return snapshot(server=server, speculation=spec, engine=EngineNumbers())


def failed() -> Snapshot:
    server = replace(
        snapshot().server,
        state=ServerState.FAILED,
        since=NOW - 74,
        ready_at=None,
        exit_code=1,
        restarts=3,
        reason="CUDA out of memory while capturing tree at batch 128: graphs need 2.9 GiB, 1.1 GiB were free",
        remedy="Set launch.cuda_graph_max_bs=64, or lower mem_fraction_static from 0.82 to 0.78",
        last_lines=(
            "[14:00:51 TP0] Capture cuda graph begin. avail mem=1.10 GB",
            "Traceback (most recent call last):",
            '  File "model_runner.py", line 1411, in init_device_graphs',
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.90 GiB.",
            "[14:00:57] Received sigquit from a child process. It usually means the child failed.",
        ),
    )
    spec = SpeculationInfo(modes=tuple(ModeInfo(mode=m) for m in DEFAULT_MODES))
    return snapshot(server=server, speculation=spec, engine=EngineNumbers())


@dataclass
class ScriptedSource:
    """Yields `items` (a number lets so many seconds pass), then what `push` adds.

    Commands are recorded; `error` is what they raise, `hold` what their answers wait for.
    """

    items: list[Item | float] = field(default_factory=list)
    points: list[HistoryPoint] = field(default_factory=list)
    lines: list[LogLine] = field(default_factory=list)
    error: SpecctlError | None = None
    calls: list[tuple[str, str]] = field(default_factory=list)
    epoch: int = 42
    hold: asyncio.Event | None = None
    now: float = 100.0
    told: bool = False

    def __post_init__(self) -> None:
        self._queue: asyncio.Queue[Item] = asyncio.Queue()

    def push(self, item: Item) -> None:
        self._queue.put_nowait(item)

    async def stream(self) -> AsyncIterator[Item]:
        for item in self.items:
            if isinstance(item, float):
                self.now += item
                continue
            yield item
        self.told = True
        while True:
            yield await self._queue.get()

    async def _answer(self, name: str, value: str = "") -> Accepted:
        self.calls.append((name, value))
        if self.hold is not None:
            await self.hold.wait()
        if self.error is not None:
            raise self.error
        return Accepted(after_event=5, epoch=self.epoch if name == "mode" else None)

    async def set_mode(self, mode: str, *, reason: str = "") -> Accepted:
        return await self._answer("mode", mode)

    async def stop(self) -> Accepted:
        return await self._answer("stop")

    async def restart(self) -> Accepted:
        return await self._answer("restart")

    async def note(self, text: str) -> Accepted:
        return await self._answer("note", text)

    async def logs(self, *, start: int | None = None, tail: int | None = None, limit: int | None = None) -> LogPage:
        lines = self.lines
        if start is not None:
            lines = [line for line in lines if line.number >= start]
        elif tail is not None:
            lines = lines[-tail:]
        if limit is not None:
            lines = lines[:limit]
        last = lines[-1].number + 1 if lines else (start or 1)
        return LogPage(run=17, lines=lines, next_number=last)

    async def history(self, seconds: float) -> list[HistoryPoint]:
        return self.points

    async def close(self) -> None:
        return None


def scene(shot: Snapshot | None, *more: Item | float, mode: str = "tree", with_events: bool = True) -> ScriptedSource:
    """A source that has told `shot` and the usual events, and then `more`."""
    first: list[Item | float] = [*(events(mode) if with_events else [])]
    if shot is not None:
        first.append(shot)
    return ScriptedSource(
        items=[*first, *more], points=history(mode) if shot else [], lines=log_lines() if shot else []
    )


LOST = LinkLost(
    reason="no daemon answers at /run/user/1000/specctl/specctld.sock", remedy="start one with `specctl up PROFILE`"
)
PENDING = replace(
    flip(42, "chain", "tree", reason=""),
    state=FlipState.ACKNOWLEDGED, requested_at=NOW - 0.112, confirmed_at=None, latency_ms=None, engine_ms=None,
    ranks_confirmed=5,
)  # fmt: skip
UNAVAILABLE = "patch refused: create_worker has another signature in sglang 0.5.24"


def refused_patch() -> Snapshot:
    spec = speculation(
        "tree",
        patch=PatchStatus.REFUSED,
        patch_reason="create_worker has another signature in sglang 0.5.24",
        last_flip=None,
        epoch=0,
        actor="",
        cause=FlipCause.BOOT,
        by_mode=(),
    )
    spec = replace(spec, modes=tuple(replace(m, unavailable=UNAVAILABLE) for m in spec.modes))
    server = replace(
        snapshot().server,
        state=ServerState.DEGRADED,
        reason=UNAVAILABLE,
        remedy="Install sglang 0.5.22 or 0.5.23",
        engine_version="0.5.24",
    )
    return snapshot(server=server, speculation=spec)


def lost_gpu() -> Snapshot:
    gpus = tuple(gpu(i) for i in range(4))
    lost = Gpu(index=2, uuid="GPU-2", name="NVIDIA H200", lost="lost at 13:58:40: GPU has fallen off the bus (XID 79)")
    busy = replace(
        gpus[1], throttle=("power cap",), processes=(GpuProcess(pid=777, name="python", memory_bytes=int(GIB)),)
    )
    return replace(snapshot(), gpus=(gpus[0], busy, lost, gpus[3]))


def no_gpu() -> Snapshot:
    return replace(snapshot(), gpus=(), gpu_note="the NVIDIA driver is not installed")


def stale() -> Snapshot:
    return replace(snapshot(), engine=engine("tree", age=12.0))
