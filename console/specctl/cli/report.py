"""`specctl status` as text: one snapshot in, lines of at most 80 columns out (long names excepted)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from specctl.cli.numbers import DASH, duration, number, percent, reading, used_of
from specctl.cli.output import clean
from specctl.core.snapshot import Flip, Gpu, ModeNumbers, ServerInfo, Snapshot, SpeculationInfo
from specctl.core.states import FlipState, PatchStatus, StepStatus

_LABEL = 9
_GAP = "   "


def status_lines(snapshot: Snapshot) -> list[str]:
    server, speculation = snapshot.server, snapshot.speculation
    lines = [*_server(server, snapshot.at), *_mode(speculation), _engine(snapshot)]
    lines += [_gpu(gpu) for gpu in snapshot.gpus] or [_line("gpus", clean(snapshot.gpu_note or DASH))]
    lines += _by_mode(speculation.by_mode)
    return [line.rstrip() for line in lines]


def watch_line(snapshot: Snapshot) -> str:
    """The snapshot on one line, for a log of `status --watch` without a terminal."""
    speculation, engine = snapshot.speculation, snapshot.engine
    return (
        f"{_clock(snapshot.at)} {snapshot.server.state}  mode {clean(speculation.mode or DASH)}  "
        f"{reading(engine.tokens_per_second)} tok/s  L {reading(engine.acceptance_length, 2)}  "
        f"run {reading(engine.running)}  queue {reading(engine.queued)}  KV {percent(engine.kv_usage)}"
    )


def _clock(at: float) -> str:
    import time

    return time.strftime("%H:%M:%S", time.localtime(at))


def _line(label: str, *parts: str) -> str:
    return f"{label:<{_LABEL}}{_GAP.join(part for part in parts if part)}"


def _server(server: ServerInfo, at: float) -> Iterator[str]:
    age = None if server.since is None else at - server.since
    up = None if server.ready_at is None or not server.state.is_serving else at - server.ready_at
    restarts = f"restarts {server.restarts}" if server.restarts else ""
    yield _line(
        "server",
        f"{server.state} for {duration(age)}",
        f"up {duration(up)}",
        f"run {number(server.run)}",
        f"pid {DASH if server.pid is None else server.pid}",
        restarts,
    )
    if server.reason:
        yield _line("reason", clean(server.reason))
    if server.remedy:
        yield _line("remedy", clean(server.remedy))
    model = clean(server.model or DASH) + (f" + {clean(server.draft)}" if server.draft else "")
    yield _line("model", model)
    yield _line("profile", clean(server.profile or DASH), f"url {clean(server.url or DASH)}")
    yield from _progress(server)
    for blocker in server.blockers:
        yield _line("waiting", clean(blocker))


def _progress(server: ServerInfo) -> Iterator[str]:
    if server.state.is_serving or server.state.is_resting:
        return
    for step in server.steps:
        if step.status is not StepStatus.WAITING:
            done = "" if step.fraction is None else f"{step.fraction * 100:.0f} %"
            yield _line(
                "step", f"{clean(step.name):<16}{step.status:<8}{duration(step.seconds)}", done, clean(step.detail)
            )


def _mode(speculation: SpeculationInfo) -> Iterator[str]:
    if speculation.patch in (PatchStatus.REFUSED, PatchStatus.ABSENT):
        yield _line("patch", f"{speculation.patch}: {clean(speculation.patch_reason or 'no reason given')}")
    shapes = {info.mode.name: info.mode.shape for info in speculation.modes}
    name = speculation.mode
    shape = f" ({shapes[name]})" if name in shapes else ""
    last = speculation.last_flip
    yield _line(
        "mode",
        clean(name or DASH) + shape,
        clean(speculation.control),
        f"by {_who(speculation)}",
        f"epoch {speculation.epoch}" if name else "",
    )
    yield _line(
        "flip", _latency(last), f"ranks {speculation.ranks or DASH}", f"flips {speculation.flips}" if name else ""
    )
    if (pending := speculation.pending) is not None:
        yield _line("pending", f"{clean(pending.to_mode)}: {_pending(pending)}")
    if last is not None and last.state in (FlipState.REFUSED, FlipState.UNCONFIRMED):
        yield _line("", f"epoch {last.epoch} to {clean(last.to_mode)} {last.state}: {clean(last.refusal or DASH)}")


def _who(speculation: SpeculationInfo) -> str:
    cause = speculation.cause or DASH
    return f"{cause} {clean(speculation.actor)}".strip()


def _latency(flip: Flip | None) -> str:
    return DASH if flip is None or flip.latency_ms is None else f"{flip.latency_ms:,.0f} ms"


def _pending(flip: Flip) -> str:
    if flip.state is FlipState.ACKNOWLEDGED:
        return f"epoch {flip.epoch}, takes effect at the next decode round"
    return f"epoch {flip.epoch} sent, {flip.ranks_confirmed}/{flip.ranks_total or DASH} ranks"


def _engine(snapshot: Snapshot) -> str:
    engine = snapshot.engine
    return _line(
        "engine",
        reading(engine.tokens_per_second, 0 if (engine.tokens_per_second.value or 0) >= 100 else 1, "tok/s"),
        f"L {reading(engine.acceptance_length, 2)}",
        f"running {reading(engine.running)}",
        f"queued {reading(engine.queued)}",
        f"KV {percent(engine.kv_usage)}",
    )


def _gpu(gpu: Gpu) -> str:
    label = f"gpu {gpu.index}"
    if gpu.lost:
        return _line(label, f"lost: {clean(gpu.lost)}")
    throttle = f"throttled: {clean(', '.join(gpu.throttle))}" if gpu.throttle else ""
    return _line(
        label,
        f"{percent(gpu.utilization):>5}",
        used_of(gpu.memory_used, gpu.memory_total),
        reading(gpu.power, 0, "W"),
        reading(gpu.temperature, 0, "C"),
        throttle,
    )


def _by_mode(numbers: Iterable[ModeNumbers]) -> Iterator[str]:
    rows = [
        (
            clean(row.mode),
            number(row.rounds),
            number(row.committed_tokens),
            number(row.acceptance_length.value, 2),
            number(row.tokens_per_second.value, 1),
        )
        for row in numbers
    ]
    if rows:
        for name, *cells in [("by mode", "rounds", "tokens", "L", "tok/s"), *rows]:
            yield f"{name:<{_LABEL}}" + "".join(f"{cell:>14}" for cell in cells)
