"""What the daemon knows at one tick, frozen. API, TUI, CLI and recorder share this one shape.

All times are Unix seconds of the daemon's host; ages are seconds at `Snapshot.at`. None means "not known", never 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from specctl.core.modes import Mode
from specctl.core.states import FlipCause, FlipState, PatchStatus, ServerState, StepStatus

SNAPSHOT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One number. `value` None = unknown, and `note` then says why. `age` is seconds since it was true."""

    value: float | None = None
    unit: str = ""
    age: float | None = None
    source: str = ""
    note: str | None = None

    @property
    def is_known(self) -> bool:
        return self.value is not None


UNKNOWN = Reading()


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonInfo:
    version: str
    pid: int
    host: str
    started_at: float
    read_only: bool = False
    data_dir: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartStep:
    """One step of a start. `fraction` is in [0, 1] where the engine tells it; `usual_s` comes from earlier runs."""

    name: str
    status: StepStatus = StepStatus.WAITING
    seconds: float | None = None
    usual_s: float | None = None
    fraction: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    state: ServerState = ServerState.STOPPED
    since: float | None = None
    reason: str | None = None
    remedy: str | None = None
    profile: str | None = None
    model: str | None = None
    draft: str | None = None
    url: str | None = None
    engine_version: str | None = None
    run: int | None = None
    pid: int | None = None
    started_at: float | None = None
    ready_at: float | None = None
    exit_code: int | None = None
    restarts: int = 0
    retry_at: float | None = None
    max_running_requests: int | None = None
    steps: tuple[StartStep, ...] = ()
    blockers: tuple[str, ...] = ()
    last_lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """One change of mode. `latency_ms`: daemon received the command -> every rank read back in the new mode.

    `engine_ms`: rank 0 received the command -> it launched the first round in the new mode (engine clock).
    Both are None for a flip that an idle server held until work came.
    """

    epoch: int
    to_mode: str
    from_mode: str | None = None
    state: FlipState = FlipState.REQUESTED
    cause: FlipCause = FlipCause.OPERATOR
    actor: str = ""
    reason: str = ""
    requested_at: float = 0.0
    confirmed_at: float | None = None
    latency_ms: float | None = None
    engine_ms: float | None = None
    ranks_confirmed: int = 0
    ranks_total: int = 0
    refusal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeInfo:
    """A mode of the running profile. `unavailable` says why it cannot run now; None = it can."""

    mode: Mode
    unavailable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeNumbers:
    """Lifetime counters of this run by mode, summed over data-parallel ranks, from the engine patch."""

    mode: str
    rounds: int | None = None
    request_rounds: int | None = None
    committed_tokens: int | None = None
    drafted_tokens: int | None = None
    acceptance_length: Reading = UNKNOWN
    tokens_per_second: Reading = UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationInfo:
    patch: PatchStatus = PatchStatus.UNKNOWN
    patch_reason: str | None = None
    patch_version: str | None = None
    control: str = "manual"
    mode: str | None = None
    epoch: int = 0
    cause: FlipCause | None = None
    actor: str = ""
    reason: str = ""
    since: float | None = None
    pending: Flip | None = None
    last_flip: Flip | None = None
    flips: int = 0
    ranks: int = 0
    modes: tuple[ModeInfo, ...] = ()
    by_mode: tuple[ModeNumbers, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineNumbers:
    """Live numbers of the engine, over a window of `window_s` seconds where they are rates or quantiles."""

    window_s: float = 5.0
    tokens_per_second: Reading = UNKNOWN
    acceptance_length: Reading = UNKNOWN
    acceptance_rate: Reading = UNKNOWN
    running: Reading = UNKNOWN
    queued: Reading = UNKNOWN
    kv_usage: Reading = UNKNOWN
    ttft_p50_ms: Reading = UNKNOWN
    ttft_p99_ms: Reading = UNKNOWN
    itl_p50_ms: Reading = UNKNOWN
    itl_p99_ms: Reading = UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    pid: int
    name: str = ""
    memory_bytes: int | None = None
    ours: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, keyed by UUID. Every field degrades alone; `lost` says why the whole device stopped answering."""

    index: int
    uuid: str
    name: str
    utilization: Reading = UNKNOWN
    memory_used: Reading = UNKNOWN
    memory_total: Reading = UNKNOWN
    power: Reading = UNKNOWN
    power_limit: Reading = UNKNOWN
    temperature: Reading = UNKNOWN
    sm_clock: Reading = UNKNOWN
    throttle: tuple[str, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    lost: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNumbers:
    cpu_percent: Reading = UNKNOWN
    memory_used: Reading = UNKNOWN
    memory_total: Reading = UNKNOWN
    server_memory: Reading = UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    seq: int
    at: float
    daemon: DaemonInfo
    version: int = SNAPSHOT_VERSION
    server: ServerInfo = field(default_factory=ServerInfo)
    speculation: SpeculationInfo = field(default_factory=SpeculationInfo)
    engine: EngineNumbers = field(default_factory=EngineNumbers)
    gpus: tuple[Gpu, ...] = ()
    gpu_note: str | None = None
    host: HostNumbers = field(default_factory=HostNumbers)
    last_event_id: int = 0
