"""The supervisor: one task owns the server's state. Everyone else sends it messages and reads what it publishes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from specctl.core.api import Accepted, StartRequest, StopRequest
from specctl.core.errors import Refused, SpecctlError
from specctl.core.events import EventKind
from specctl.core.snapshot import ServerInfo, StartStep
from specctl.core.states import ServerState, StepStatus
from specctl.daemon import messages as m
from specctl.daemon import process, watchers
from specctl.daemon.events import EventLog
from specctl.daemon.health import Health
from specctl.daemon.launching import Launch, Launcher, RunSettings
from specctl.daemon.logs import RunLog
from specctl.daemon.modes import ModeControl
from specctl.daemon.process import Child
from specctl.daemon.reaper import RunMembers
from specctl.daemon.restart import RestartBudget
from specctl.daemon.run import Run
from specctl.daemon.runs import RunRecord, RunStore
from specctl.daemon.steps import StartSteps, explain_exit
from specctl.daemon.stopper import Stopper

log = logging.getLogger(__name__)
LAST_LINES = 20


class Supervisor:
    """`info`, `current` and `modes` may be read by anyone in the event loop; only `serve` changes them."""

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
        self.changed: Callable[[], None] = lambda: None

    # -- the outside -------------------------------------------------------

    async def ask(self, command: m.Command) -> Accepted:
        """Hands a command to the owner; returns what it said, or raises the SpecctlError it refused with."""
        self._inbox.put_nowait(command)
        return await command.reply

    def _post(self, report: m.Report) -> None:
        self._inbox.put_nowait(report)

    async def serve(self) -> None:
        """Adopts what an earlier daemon left running, then obeys until cancelled."""
        self._adopt()
        while True:
            message = await self._inbox.get()
            try:
                await self._handle(message)
            except SpecctlError as error:
                self._fail_command(message, error)
            except Exception as error:
                log.exception("while handling %s", type(message).__name__)
                self._fail_command(message, SpecctlError(f"internal error: {error!r}", remedy="See daemon.log"))
            self.changed()

    @staticmethod
    def _fail_command(message: m.Command | m.Report, error: SpecctlError) -> None:
        if isinstance(message, m.Command) and not message.reply.done():
            message.reply.set_exception(error)
        elif not isinstance(message, m.Command):
            log.error("%s: %s", type(message).__name__, error)

    async def detach(self) -> None:
        """Lets the server run on; a later daemon adopts it."""
        if self.current is not None:
            await self.current.close()

    # -- dispatch ----------------------------------------------------------

    async def _handle(self, message: m.Command | m.Report) -> None:
        if isinstance(message, m.Command):
            accepted = self._command(message)
            if not message.reply.done():
                message.reply.set_result(accepted)
            return
        run = self.current
        if run is None or run.number != message.run:
            return
        handler: Any = _HANDLERS.get(type(message))
        result = handler(self, run, message)
        if asyncio.iscoroutine(result):
            await result

    def _command(self, command: m.Command) -> Accepted:
        match command:
            case m.Start(request=request):
                return self._start(request)
            case m.Stop(request=request, drain=drain, end_daemon=end):
                return self._stop(request, drain=drain, end_daemon=end)
            case m.Restart(request=request):
                return self._restart(request)
            case m.SetMode(request=request):
                return self.modes.command(request, self.info, self.current)
            case m.Note(request=request):
                event = self._events.add(EventKind.NOTE, request.text, run=self.info.run, data={"actor": request.actor})
                return Accepted(after_event=event.id)
            case _:
                raise SpecctlError(f"unknown command {type(command).__name__}")

    def _log_command(self, text: str, actor: str) -> int:
        return self._events.add(EventKind.COMMAND, text, run=self.info.run, data={"actor": actor}).id

    # -- state -------------------------------------------------------------

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

    # -- start -------------------------------------------------------------

    def _start(self, request: StartRequest) -> Accepted:
        if not self.info.state.is_resting:
            raise Refused(
                f"the server is {self.info.state.value}, profile {self.info.profile}",
                remedy="Stop it first with `specctl stop`",
            )
        run, launch = self._plan(request, None)
        after = self._log_command(f"start {launch.settings.profile}", request.actor)
        self._request, self._ever_ready = request, False
        self._budget = RestartBudget(launch.settings.restart)
        self.modes.forget()
        self._begin(run)
        return Accepted(after_event=after, message=f"run {run.number}")

    def _plan(self, request: StartRequest, port: int | None) -> tuple[Run, Launch]:
        """A run that is planned but not begun; leaves nothing behind when planning fails."""
        number, folder = self._runs.create()
        marker = f"{process.boot_id()}:{self._daemon_id}:{number}"
        try:
            launch = self._launcher.plan(request, folder, marker, port)
        except BaseException:
            folder.rmdir()
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
        steps = StartSteps.of(time.time(), settings.modes, self._runs.usual_seconds(request.profile))
        return Run(number, folder, settings, record, steps, launch=launch), launch

    def _begin(self, run: Run) -> None:
        settings = run.settings
        self.current = run
        self._runs.write(run.record)
        self._set(
            ServerState.PREFLIGHT,
            profile=settings.profile,
            model=settings.model,
            draft=settings.draft,
            url=settings.url,
            run=run.number,
            pid=None,
            started_at=None,
            ready_at=None,
            exit_code=None,
            retry_at=None,
            engine_version=None,
            restarts=self._budget.total if self._budget else 0,
            max_running_requests=settings.max_running_requests,
            steps=(StartStep(name="preflight", status=StepStatus.RUNNING),),
            blockers=(),
            last_lines=(),
        )
        run.spawn(watchers.preflight(run, self._launcher, self._post))

    async def _preflight_done(self, run: Run, report: m.PreflightDone) -> None:
        if self.info.state is not ServerState.PREFLIGHT:
            return
        steps = tuple(
            StartStep(name=c.name, status=StepStatus.DONE if c.ok else StepStatus.FAILED, detail=c.message)
            for c in report.checks
        )
        self.info = replace(self.info, steps=steps)
        failed = [check for check in report.checks if not check.ok]
        if report.error is not None:
            await self._end(run, ServerState.FAILED, report.error.message, report.error.remedy)
        elif failed:
            more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
            await self._end(
                run, ServerState.FAILED, f"preflight: {failed[0].name}: {failed[0].message}{more}", failed[0].remedy
            )
        else:
            await self._spawn(run)

    async def _spawn(self, run: Run) -> None:
        assert run.launch is not None
        launch = run.launch
        try:
            child = process.start(
                launch.argv, launch.env, log=run.folder / "server.log", cwd=launch.cwd, marker=run.record.marker
            )
        except SpecctlError as error:
            await self._end(run, ServerState.FAILED, error.message, error.remedy)
            return
        now = time.time()
        run.record.pid, run.record.start_ticks = child.pid, child.identity.start_ticks
        run.record.boot_id, run.record.started_at = child.identity.boot_id, now
        self._runs.write(run.record)
        run.steps = StartSteps.of(now, run.settings.modes, run.steps.usual)
        self._watch(run, child)
        self._set(ServerState.STARTING, pid=child.pid, started_at=now, steps=run.steps.steps(now))
        run.spawn(watchers.wait_until_ready(run, self._post))

    def _watch(self, run: Run, child: Child) -> None:
        settings = run.settings
        run.child = child
        run.members = RunMembers(child.marker, child.identity)
        run.log = RunLog(run.number, run.folder, max_bytes=settings.log_max_bytes, keep_files=settings.log_keep_files)
        run.open_engine()
        run.spawn(watchers.wait_for_exit(run, self._post))
        run.spawn(watchers.follow_log(run, self._post))
        run.spawn(watchers.watch_members(run))

    def _log_lines(self, run: Run, report: m.LogLines) -> None:
        if self.info.state is not ServerState.STARTING:
            return
        now, before = time.time(), run.steps.current
        for number, line in report.lines:
            run.steps.feed(number, line, now)
        self._show_steps(run)
        if run.steps.current != before:
            self._events.add(EventKind.STEP, run.steps.current, run=run.number)

    def _log_alert(self, run: Run, report: m.LogAlert) -> None:
        if report.message:
            self._events.add(EventKind.ALERT, report.message, run=run.number)

    async def _answers_ready(self, run: Run, report: m.AnswersReady) -> None:
        if self.info.state is not ServerState.STARTING:
            return
        now = time.time()
        run.steps.finish(now)
        self._ever_ready = True
        if run.record.ready_at is None:
            run.record.ready_at, run.record.step_seconds = now, run.steps.seconds
            self._runs.write(run.record)
        self.info = replace(self.info, ready_at=run.record.ready_at, steps=run.steps.steps(now))
        self._serve_run(run, report)
        if not run.adopted:
            self.modes.apply_again(run)

    def _serve_run(self, run: Run, report: m.AnswersReady) -> None:
        run.was_ready, run.ready_since = True, time.time()
        run.ready_failures = 0 if report.ready else 2
        run.judge_patch(report.info)
        self._take_info(run)
        self.modes.observe_info(run)
        run.spawn(watchers.poll_metrics(run, self._post))
        run.spawn(watchers.poll_info(run, self._post))
        self._judge(run)

    def _take_info(self, run: Run) -> None:
        info = run.info
        if info is not None:
            most = info.max_running_requests or self.info.max_running_requests
            self.info = replace(self.info, engine_version=info.version, max_running_requests=most)

    async def _not_ready_in_time(self, run: Run, report: m.NotReadyInTime) -> None:
        if self.info.state is not ServerState.STARTING:
            return
        run.steps.fail(time.time())
        self._show_steps(run)
        run.ending = f"not ready after {report.seconds:g} s, in step {run.steps.current!r}"
        self._stop_processes(run, drain_s=0.0, reason=run.ending)

    # -- serving -----------------------------------------------------------

    def _polled(self, run: Run, report: m.Polled) -> None:
        run.metrics_error = report.error
        if report.page is not None:
            run.meter.add(report.page)
            self.modes.observe_page(run, report.page)
        if self.info.state.is_serving:
            if self._budget:
                self._budget.refill(time.time() - run.ready_since)
            self._judge(run)

    def _info_polled(self, run: Run, report: m.InfoPolled) -> None:
        run.ready_failures = 0 if report.ready else run.ready_failures + 1
        if report.info is not None:
            run.judge_patch(report.info)
            self._take_info(run)
            self.modes.observe_info(run)
        if self.info.state.is_serving:
            self._judge(run)

    def _judge(self, run: Run) -> None:
        now = time.time()
        page_at = run.meter.page.at if run.meter.page else run.ready_since
        problem = Health(
            patch=run.patch,
            patch_reason=run.patch_reason,
            patch_expected=bool(run.settings.modes),
            ready_failures=run.ready_failures,
            metrics_age=now - page_at,
            metrics_error=run.metrics_error,
            frozen_for=run.meter.frozen_for(),
            wedged_after_s=run.settings.wedged_after_s,
        ).problem()
        if problem is None:
            self._set(ServerState.READY)
        else:
            self._set(ServerState.DEGRADED, problem[0], problem[1])

    def _flip_progress(self, run: Run, report: m.FlipProgress) -> None:
        if report.info is not None:
            run.judge_patch(report.info)
        self.modes.progress(run, report)

    # -- stop --------------------------------------------------------------

    def _stop(self, request: StopRequest, *, drain: bool, end_daemon: bool) -> Accepted:
        state, run = self.info.state, self.current
        if drain and not state.is_serving:
            raise Refused(f"the server is {state.value}: there is nothing to drain")
        word = "down" if end_daemon else "drain" if drain else "stop"
        after = self._log_command(word, request.actor)
        # Whatever was to follow (a restart), the newest command decides; an end of the daemon stays decided.
        if end_daemon:
            self._then = self.ended.set
        elif self._then != self.ended.set:
            self._then = None
        if state.is_resting or run is None:
            self._follow_up()
            return Accepted(after_event=after, message=f"the server is {state.value}")
        self._stop_run(run, request.drain_s)
        return Accepted(after_event=after)

    def _restart(self, request: StopRequest) -> Accepted:
        if self._request is None:
            raise Refused("nothing was started yet", remedy="Start a profile with `specctl up PROFILE`")
        if self._then == self.ended.set:
            raise Refused("the daemon is about to end")
        again = self._request
        after = self._log_command("restart", request.actor)
        if self.info.state.is_resting or self.current is None:
            self._begin_again(again, None)
        else:
            port = self.current.settings.port
            self._then = lambda: self._begin_again(again, port)
            self._stop_run(self.current, request.drain_s)
        return Accepted(after_event=after)

    def _begin_again(self, request: StartRequest, port: int | None) -> None:
        try:
            run, launch = self._plan(request, port)
        except SpecctlError as error:
            self._set(ServerState.FAILED, error.message, error.remedy)
            return
        if self._budget is None:
            self._budget = RestartBudget(launch.settings.restart)
        self._begin(run)

    def _stop_run(self, run: Run, drain_s: float | None) -> None:
        state = self.info.state
        run.stop_wanted = True
        if state in (ServerState.PREFLIGHT, ServerState.BACKOFF):
            run.cancel_tasks()
            self._inbox.put_nowait(m.AllGone(run.number))
            self._set(ServerState.STOPPING, retry_at=None)
        elif state is ServerState.DRAINING and run.stopper is not None:
            if drain_s is not None:
                run.stopper.hurry(drain_s)
        elif run.stopper is None:
            wanted = run.settings.drain_s if drain_s is None else drain_s
            self._stop_processes(run, drain_s=wanted if state.is_serving else 0.0, reason=None)

    def _stop_processes(self, run: Run, *, drain_s: float, reason: str | None) -> None:
        assert run.members is not None
        self.modes.abandon("the server is being stopped")
        run.stopper = Stopper(
            run.members,
            drain_s=drain_s,
            stop_timeout_s=run.settings.stop_timeout_s,
            say=lambda blockers, note, term: self._post(m.StopProgress(run.number, blockers, note, term)),
        )
        self._set(ServerState.DRAINING if drain_s > 0 else ServerState.STOPPING, reason, retry_at=None)
        run.spawn(self._run_stopper(run, run.stopper, sweep=False))

    async def _run_stopper(self, run: Run, stopper: Stopper, *, sweep: bool) -> None:
        await (stopper.sweep() if sweep else stopper.run())
        self._post(m.AllGone(run.number))

    def _stop_progress(self, run: Run, report: m.StopProgress) -> None:
        if report.term_sent and self.info.state is ServerState.DRAINING:
            self._set(ServerState.STOPPING, run.ending)
        self.info = replace(self.info, blockers=report.blockers, reason=report.note or self.info.reason)

    # -- end ---------------------------------------------------------------

    async def _exited(self, run: Run, _report: m.Exited) -> None:
        assert run.child is not None
        assert run.members is not None
        run.exited, run.exit_code = True, run.child.exit_code()
        if run.log is not None and self.info.state is ServerState.STARTING:
            self._log_lines(run, m.LogLines(run.number, run.log.refresh()))
        if run.stopper is not None:
            return
        # Nobody asked for it. What it left behind goes first: an exit is not an end while descendants live.
        run.ending = _exit_text(run)
        if run.members.scan():
            self._set(ServerState.STOPPING, f"{run.ending}; ending what it left behind")
        run.stopper = Stopper(
            run.members,
            drain_s=0.0,
            stop_timeout_s=0.0,
            say=lambda blockers, note, term: self._post(m.StopProgress(run.number, blockers, note, term)),
        )
        run.spawn(self._run_stopper(run, run.stopper, sweep=True))

    async def _all_gone(self, run: Run, _report: m.AllGone) -> None:
        if run.child is not None and not run.exited:
            run.exited, run.exit_code = True, run.child.exit_code()
        if run.stop_wanted:
            await self._end(run, ServerState.STOPPED, None, None)
            self._follow_up()
            return
        reason = run.ending or ""
        policy = run.settings.restart
        failed = run.exit_code != 0 or not run.was_ready
        if not self._ever_ready:
            await self._end(run, ServerState.FAILED, reason, _remedy(run))
        elif self._request is None or not policy.wants(failed=failed):
            state = ServerState.FAILED if failed else ServerState.STOPPED
            await self._end(run, state, reason, "Start it again with `specctl restart`")
        else:
            await self._back_off(run, reason)

    async def _back_off(self, run: Run, reason: str) -> None:
        assert self._budget is not None
        delay = self._budget.take()
        most = self._budget.policy.max_restarts
        if delay is None:
            text = f"crash loop: {most} restarts in a row, the last one {reason}"
            await self._end(run, ServerState.FAILED, text, _remedy(run))
            return
        text = f"restart {self._budget.used}/{most} in {delay:.0f} s: {reason}"
        await self._end(run, ServerState.BACKOFF, text, None, retry_at=time.time() + delay)
        run.spawn(self._retry_after(run, delay))

    async def _retry_after(self, run: Run, delay: float) -> None:
        await asyncio.sleep(delay)
        self._post(m.RetryDue(run.number))

    def _retry_due(self, run: Run, _report: m.RetryDue) -> None:
        if self.info.state is ServerState.BACKOFF and self._request is not None:
            self._begin_again(self._request, run.settings.port)

    async def _end(self, run: Run, state: ServerState, reason: str | None, remedy: str | None, **fields: Any) -> None:
        """The run has no process any more: keep its last words, write its outcome, close it."""
        lines = tuple(run.last_lines(LAST_LINES))
        if run.record.outcome is None:
            run.record.ended_at, run.record.exit_code = time.time(), run.exit_code
            run.record.outcome = f"{state.value}: {reason}" if reason else state.value
            self._runs.write(run.record)
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

    # -- adoption ----------------------------------------------------------

    def _adopt(self) -> None:
        """Takes over the newest run that still lives; closes the books of those that do not."""
        for record in self._runs.unfinished():
            child = process.adopt(record.identity, record.marker)
            if child is not None and self.current is None:
                self._take_over(record, child)
            elif child is None:
                self._close_books(record)

    def _close_books(self, record: RunRecord) -> None:
        members = RunMembers(record.marker, record.identity)
        left = members.scan() if record.boot_id == process.boot_id() else []
        if left:
            who = "; ".join(member.describe() for member in left)
            self._events.add(EventKind.ALERT, f"run {record.run} left processes behind: {who}", run=record.run)
            return
        record.outcome, record.ended_at = "ended while no daemon watched", time.time()
        self._runs.write(record)

    def _take_over(self, record: RunRecord, child: Child) -> None:
        settings = record.settings or RunSettings(profile=record.profile, url=record.url, port=0)
        steps = StartSteps.of(record.started_at, settings.modes, {})
        run = Run(record.run, self._runs.path(record.run), settings, record, steps, adopted=True)
        self.current = run
        self._request = StartRequest(profile=record.profile, overrides=record.overrides)
        self._budget = RestartBudget(settings.restart)
        self._ever_ready = record.ready_at is not None
        self.modes.adopt(run)
        self._events.add(
            EventKind.DAEMON, f"adopted run {run.number}: pid {child.pid}, started by an earlier daemon", run=run.number
        )
        self._watch(run, child)
        self._set(
            ServerState.STARTING,
            "adopted from an earlier daemon",
            profile=settings.profile,
            model=settings.model,
            draft=settings.draft,
            url=settings.url,
            run=run.number,
            pid=child.pid,
            started_at=record.started_at,
            ready_at=record.ready_at,
            max_running_requests=settings.max_running_requests,
        )
        run.spawn(watchers.wait_until_ready(run, self._post))


_HANDLERS: dict[type[m.Report], Callable[..., Any]] = {
    m.PreflightDone: Supervisor._preflight_done,
    m.LogLines: Supervisor._log_lines,
    m.LogAlert: Supervisor._log_alert,
    m.Exited: Supervisor._exited,
    m.AnswersReady: Supervisor._answers_ready,
    m.NotReadyInTime: Supervisor._not_ready_in_time,
    m.Polled: Supervisor._polled,
    m.InfoPolled: Supervisor._info_polled,
    m.StopProgress: Supervisor._stop_progress,
    m.AllGone: Supervisor._all_gone,
    m.RetryDue: Supervisor._retry_due,
    m.FlipProgress: Supervisor._flip_progress,
}


def _kind(reason: str | None) -> str | None:
    return reason.partition(":")[0] if reason else None


def _exit_text(run: Run) -> str:
    code = run.exit_code
    if code is None:
        how = "ended (its exit code is not known: it was adopted)"
    elif code < 0:
        how = f"killed by signal {-code}" + (" (out of memory?)" if code == -9 else "")
    else:
        how = f"exited with code {code}"
    if not run.was_ready:
        how += f" while {run.steps.current}"
    why = explain_exit(run.last_lines(200))
    return f"{how}: {why}" if why else how


def _remedy(run: Run) -> str:
    return f"`specctl logs --run {run.number} --tail 50` shows the end of its log"
