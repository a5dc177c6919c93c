"""Requests and replies of the daemon's API, beside Snapshot and Event."""

from __future__ import annotations

from dataclasses import dataclass, field

from specctl.core.events import Event, HistoryPoint, LogLine

API_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """profile: a shipped or user profile's name, or an absolute path of a TOML file. overrides: "table.key" -> text."""

    profile: str
    overrides: dict[str, str] = field(default_factory=dict)
    actor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequest:
    """drain_s: how long running requests may take; None = the profile's value; 0 = do not drain."""

    drain_s: float | None = None
    actor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeRequest:
    mode: str
    reason: str = ""
    actor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRequest:
    text: str
    actor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A command was taken on. Its outcome comes as events after `after_event`; `epoch` is set for flips."""

    after_event: int
    epoch: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    events: list[Event]
    last_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """`next_number` continues a follow; `dropped` counts lines that rotation removed before they could be read."""

    run: int
    lines: list[LogLine]
    next_number: int
    dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    points: list[HistoryPoint]
