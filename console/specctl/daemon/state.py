"""What the supervisor's task owns: the published state, the current run, and how a run begins and ends on paper."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from specctl.core.api import StartRequest
from specctl.core.errors import Refused
from specctl.core.events import EventKind
from specctl.core.snapshot import ServerInfo
from specctl.core.states import ServerState
from specctl.daemon import messages as m
from specctl.daemon import process
from specctl.daemon.events import EventLog
from specctl.daemon.launching import Launch, Launcher
from specctl.daemon.modes import ModeControl
from specctl.daemon.restart import RestartBudget
from specctl.daemon.run import Run
from specctl.daemon.runs import RunRecord, RunStore
from specctl.daemon.steps import StartSteps

LAST_LINES = 20


class StateOwner:
    """`info`, `current` and `modes` may be read by anyone in the event loop; only the owner's task changes them."""

    def __init__(self, launcher: Launcher, runs: RunStore, events: EventLog, *, daemon_id: str) -> None:
        self._launcher, self._runs, self._events = launcher, runs, events
        self._daemon_id = daemon_id
        self._inbox: asyncio.Queue[m.Command | m.Report] = asyncio.Queue()
        self._request: StartRequest | None = None
        self._budget: RestartBudget | None = None
        self._ever_ready = False
        self._then: Callable[[], None] | None = None
        self.info = ServerInfo(since=time.time())
        self.current: Run | None = None
        self.modes = ModeControl(events, self._post)
        self.ended = asyncio.Event()

    def _post(self, report: m.Report) -> None:
        self._inbox.put_nowait(report)

    def _log_command(self, text: str, actor: str) -> int:
        return self._events.add(EventKind.COMMAND, text, run=self.info.run, data={"actor": actor}).id

    def _set(self, state: ServerState, reason: str | None = None, remedy: str | None = None, **fields: Any) -> None:
        """Changes the state and says so in an event. A reason that only counts seconds on makes no event."""
        before = self.info
        since = before.since if state == before.state else time.time()
        self.info = replace(before, state=state, since=since, reason=reason, remedy=remedy, **fields)
        if state == before.state and _kind(reason) == _kind(before.reason):
            return
        text = f"{state.value}: {reason}" if reason else state.value
        self._events.add(EventKind.STATE, text, run=self.info.run, data={"state": state.value, "reason": reason or ""})

    def _show_steps(self, run: Run) -> None:
        self.info = replace(self.info, steps=run.steps.steps(time.time()))

    def _plan(self, request: StartRequest, port: int | None) -> tuple[Run, Launch]:
        """A run that is planned and recorded but not begun; leaves nothing behind when that fails."""
        try:
            number, folder = self._runs.create()
        except OSError as error:
            raise _unwritable(self._runs.folder, error) from error
        marker = f"{process.boot_id()}:{self._daemon_id}:{number}"
        try:
            launch = self._launcher.plan(request, folder, marker, port)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        settings = launch.settings
        record = RunRecord(
            run=number,
            profile=request.profile,
            overrides=dict(request.overrides),
            marker=marker,
            url=settings.url,
            argv=list(launch.argv),
            settings=settings,
        )
        try:
            # Before anything is launched: a server without a record could not be found by a later daemon.
            self._runs.write(record)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise _unwritable(folder, error) from error
        steps = StartSteps.of(time.time(), settings.modes, self._runs.usual_seconds(request.profile))
        return Run(number, folder, settings, record, steps, launch=launch), launch

    def _record(self, record: RunRecord) -> None:
        """Writes run.json as far as the disk allows: what happens to the server must not wait for it."""
        try:
            self._runs.write(record)
        except OSError as error:
            what = error.strerror or str(error)
            self._events.add(EventKind.ALERT, f"run.json of run {record.run} cannot be written: {what}", run=record.run)

    async def _end(self, run: Run, state: ServerState, reason: str | None, remedy: str | None, **fields: Any) -> None:
        """The run has no process any more: keep its last words, write its outcome, close it."""
        lines = tuple(run.last_lines(LAST_LINES))
        if run.record.outcome is None:
            run.record.ended_at, run.record.exit_code = time.time(), run.exit_code
            run.record.outcome = f"{state.value}: {reason}" if reason else state.value
            self._record(run.record)
        if state is ServerState.FAILED and not run.was_ready and run.child is not None:
            run.steps.fail(time.time())
            self._show_steps(run)
        self.modes.abandon("the server has ended")
        await run.close()
        self._set(
            state,
            reason,
            remedy,
            exit_code=run.exit_code,
            pid=None,
            blockers=(),
            last_lines=lines if state is not ServerState.STOPPED else (),
            **fields,
        )
        self._runs.prune(run.settings.keep_runs)

    def _follow_up(self) -> None:
        then, self._then = self._then, None
        if then is not None:
            then()


def _unwritable(folder: Path, error: OSError) -> Refused:
    return Refused(
        f"the run folder {folder} cannot be written: {error.strerror or error}",
        remedy="Free space there or set SPECCTL_HOME to another disk",
    )


def _kind(reason: str | None) -> str | None:
    return reason.partition(":")[0] if reason else None
