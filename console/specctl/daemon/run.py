"""One run while it is current: its processes, log, windows and background tasks."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from specctl.core.modes import Mode
from specctl.core.states import PatchStatus
from specctl.daemon.launching import Launch, RunSettings
from specctl.daemon.logs import RunLog
from specctl.daemon.process import Child
from specctl.daemon.reaper import RunMembers
from specctl.daemon.runs import RunRecord
from specctl.daemon.steps import StartSteps
from specctl.daemon.stopper import Stopper
from specctl.telemetry.engine import EngineClient
from specctl.telemetry.meter import EngineMeter
from specctl.telemetry.pages import ServerInfoPage

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Run:
    """`launch` is None for an adopted run; `members` and `child` are None before the process exists."""

    number: int
    folder: Path
    settings: RunSettings
    record: RunRecord
    steps: StartSteps
    launch: Launch | None = None
    child: Child | None = None
    members: RunMembers | None = None
    log: RunLog | None = None
    engine: EngineClient | None = None
    meter: EngineMeter = field(default_factory=EngineMeter)
    info: ServerInfoPage | None = None
    patch: PatchStatus = PatchStatus.UNKNOWN
    patch_reason: str | None = None
    stopper: Stopper | None = None
    exited: bool = False
    exit_code: int | None = None
    was_ready: bool = False
    adopted: bool = False
    stop_wanted: bool = False
    needs_mode: bool = False  # the operator's mode is still to be applied to this restarted server
    ending: str | None = None
    died: str | None = None
    ready_failures: int = 0
    metrics_error: str | None = None
    ready_since: float = 0.0
    answered_at: float = 0.0  # Unix seconds of the last answer that came from the schedulers
    pids: frozenset[int] = frozenset()
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("run %s: a background task ended", self.number, exc_info=error)

    def cancel_tasks(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    async def close(self) -> None:
        """Lets go of everything; touches no process."""
        self.cancel_tasks()
        if self.engine is not None:
            await self.engine.close()
        if self.log is not None:
            self.log.close()
            self.log = None
        if self.child is not None:
            self.child.close()

    def open_engine(self) -> EngineClient:
        self.engine = EngineClient(
            self.settings.url,
            api_key=os.environ.get(self.settings.api_key_env) if self.settings.api_key_env else None,
            admin_key=os.environ.get(self.settings.admin_key_env) if self.settings.admin_key_env else None,
        )
        return self.engine

    def mode_called(self, name: str | None) -> Mode | None:
        return next((mode for mode in self.settings.modes if mode.name == name), None)

    def last_lines(self, count: int) -> list[str]:
        """The end of the run's output, the last unfinished line included once the process is gone."""
        if self.log is None:
            return []
        self.log.finished = self.log.finished or self.exited
        self.log.refresh()
        return [line.text for line in self.log.page(tail=count).lines]

    def judge_patch(self, info: ServerInfoPage | None) -> None:
        """What the read-back, or else the status files of the schedulers, say of the engine patch."""
        if info is not None:
            self.info = info
            self.meter.engine_version = info.version
        if info is not None and info.groups:
            self.patch, self.patch_reason = PatchStatus.ACTIVE, None
            return
        reasons = _refused_in(self.folder / "status")
        if reasons:
            self.patch, self.patch_reason = PatchStatus.REFUSED, reasons[0]
        elif info is not None:
            self.patch, self.patch_reason = PatchStatus.ABSENT, "the server does not read it back"


class _PatchFile(msgspec.Struct):
    status: str = ""
    reason: str | None = None


def _refused_in(folder: Path) -> list[str]:
    reasons = []
    for path in sorted(folder.glob("patch-*.json")) if folder.is_dir() else ():
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_PatchFile)
        except (OSError, msgspec.DecodeError):
            continue
        if found.status == "refused":
            reasons.append(found.reason or "no reason given")
    return reasons
