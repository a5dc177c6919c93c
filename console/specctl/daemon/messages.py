"""What the supervisor's task is told: commands from operators, reports from the watchers of a run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from specctl.core.api import Accepted, ModeRequest, NoteRequest, StartRequest, StopRequest
from specctl.core.errors import SpecctlError
from specctl.daemon.launching import Check
from specctl.telemetry.pages import MetricsPage, ServerInfoPage


def _future() -> asyncio.Future[Accepted]:
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True)
class Command:
    """Answered through `reply`, with Accepted or a SpecctlError."""

    reply: asyncio.Future[Accepted] = field(default_factory=_future, init=False)


@dataclass(slots=True)
class Start(Command):
    request: StartRequest


@dataclass(slots=True)
class Stop(Command):
    request: StopRequest
    drain: bool = False
    end_daemon: bool = False


@dataclass(slots=True)
class Restart(Command):
    request: StopRequest


@dataclass(slots=True)
class SetMode(Command):
    request: ModeRequest


@dataclass(slots=True)
class Note(Command):
    request: NoteRequest


@dataclass(frozen=True, slots=True)
class Report:
    """About one run; a report of a run that is no longer the current one is dropped."""

    run: int


@dataclass(frozen=True, slots=True)
class PreflightDone(Report):
    checks: list[Check]
    error: SpecctlError | None = None


@dataclass(frozen=True, slots=True)
class LogLines(Report):
    lines: list[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class LogAlert(Report):
    message: str


@dataclass(frozen=True, slots=True)
class Exited(Report):
    """The run's first process has ended."""


@dataclass(frozen=True, slots=True)
class AnswersReady(Report):
    """`ready` False: an adopted server, which was ready once, does not answer now."""

    info: ServerInfoPage | None
    ready: bool = True


@dataclass(frozen=True, slots=True)
class NotReadyInTime(Report):
    seconds: float


@dataclass(frozen=True, slots=True)
class Polled(Report):
    """One round of the poller: a page, or why there is none."""

    page: MetricsPage | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ProcessDied(Report):
    """The serving server says in its log that one of its processes has died. `who`: which, and how."""

    who: str


@dataclass(frozen=True, slots=True)
class InfoPolled(Report):
    """`answered`: whether /server_info had any answer, be it a refusal."""

    info: ServerInfoPage | None
    ready: bool | None
    answered: bool = True


@dataclass(frozen=True, slots=True)
class StopProgress(Report):
    blockers: tuple[str, ...]
    note: str | None = None
    term_sent: bool = False


@dataclass(frozen=True, slots=True)
class AllGone(Report):
    """No process of the run is left on this machine."""


@dataclass(frozen=True, slots=True)
class RetryDue(Report):
    pass


@dataclass(frozen=True, slots=True)
class FlipProgress(Report):
    """What the watcher of a flip has read back. `final`: it watches no longer."""

    epoch: int
    acknowledged: bool = False
    confirmed_at: float | None = None
    latency_ms: float | None = None
    engine_ms: float | None = None
    ranks_confirmed: int = 0
    ranks_total: int = 0
    refusal: str | None = None
    gave_up: str | None = None
    info: ServerInfoPage | None = None
