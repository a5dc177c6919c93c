"""The daemon's own /metrics page, made from one snapshot."""

from __future__ import annotations

from collections.abc import Iterator

from specctl.core.snapshot import Reading, Snapshot
from specctl.core.states import ServerState


def _gauge(name: str, text: str, samples: list[tuple[str, float]]) -> Iterator[str]:
    if samples:
        yield f"# HELP {name} {text}"
        yield f"# TYPE {name} gauge"
        for labels, value in samples:
            yield f"{name}{labels} {value!r}"


def _known(reading: Reading, labels: str = "") -> list[tuple[str, float]]:
    """Unknown is no sample at all: a 0 would be a number."""
    return [] if reading.value is None else [(labels, float(reading.value))]


def _label(**values: str) -> str:
    escaped = (
        (key, value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")) for key, value in values.items()
    )
    return "{" + ",".join(f'{key}="{value}"' for key, value in escaped) + "}"


def prometheus_text(snapshot: Snapshot) -> str:
    engine, spec = snapshot.engine, snapshot.speculation
    states = [(_label(state=s.value), float(s is snapshot.server.state)) for s in ServerState]
    modes = [(_label(mode=i.mode.name), float(i.mode.name == spec.mode)) for i in spec.modes if spec.mode]
    lengths = [s for n in spec.by_mode for s in _known(n.acceptance_length, _label(mode=n.mode))]
    gpus = [s for g in snapshot.gpus for s in _known(g.utilization, _label(uuid=g.uuid))]
    lines = [
        *_gauge("specctl_server_state", "1 for the state that the server is in.", states),
        *_gauge("specctl_server_restarts", "Restarts since the operator's start.", [("", snapshot.server.restarts)]),
        *_gauge("specctl_mode", "1 for the live speculation mode.", modes),
        *_gauge("specctl_mode_acceptance_length", "Tokens a request commits a round, in this run.", lengths),
        *_gauge("specctl_tokens_per_second", "Decoded tokens a second.", _known(engine.tokens_per_second)),
        *_gauge("specctl_acceptance_length", "In the live mode, over a window.", _known(engine.acceptance_length)),
        *_gauge("specctl_running_requests", "Requests that decode.", _known(engine.running)),
        *_gauge("specctl_queued_requests", "Requests that wait.", _known(engine.queued)),
        *_gauge("specctl_gpu_utilization_percent", "From NVML.", gpus),
    ]
    return "\n".join(lines) + "\n"
