"""Events: what happened, numbered. They are the audit trail, the chart's markers and what a waiting command waits for."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from specctl.core.snapshot import Flip


class EventKind(StrEnum):
    DAEMON = "daemon"
    COMMAND = "command"
    STATE = "state"
    STEP = "step"
    FLIP = "flip"
    ALERT = "alert"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """`id` grows by one and never repeats while one daemon's history lasts. `flip` is set on FLIP events only."""

    id: int
    at: float
    kind: EventKind
    message: str
    run: int | None = None
    flip: Flip | None = None
    data: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of the server's output. `at` is None where the line carries no time of its own."""

    run: int
    number: int
    text: str
    at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPoint:
    """One second of the charts. None where the value was not known."""

    at: float
    mode: str | None = None
    tokens_per_second: float | None = None
    acceptance_length: float | None = None
    running: float | None = None
    queued: float | None = None
    gpu_utilization: float | None = None
