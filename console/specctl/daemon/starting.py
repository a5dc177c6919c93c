"""From a request to a serving server: preflight, launch, start steps, readiness, health; and adoption."""

from __future__ import annotations

import time
from dataclasses import replace

from specctl.core.api import Accepted, StartRequest
from specctl.core.errors import Refused, SpecctlError
from specctl.core.events import EventKind
from specctl.core.snapshot import StartStep
from specctl.core.states import ServerState, StepStatus
from specctl.daemon import messages as m
from specctl.daemon import process, watchers
from specctl.daemon.health import Health
from specctl.daemon.launching import RunSettings
from specctl.daemon.logs import RunLog
from specctl.daemon.process import Child
from specctl.daemon.reaper import RunMembers
from specctl.daemon.restart import RestartBudget
from specctl.daemon.run import Run
from specctl.daemon.runs import RunRecord
from specctl.daemon.state import StateOwner
from specctl.daemon.steps import StartSteps


class Starting(StateOwner):
    """The part of the supervisor that brings a run to READY and judges it while it serves."""

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

    def _begin(self, run: Run) -> None:
        settings = run.settings
        self.current = run
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

    def _begin_again(self, request: StartRequest, port: int | None) -> None:
        try:
            run, launch = self._plan(request, port)
        except SpecctlError as error:
            self._set(ServerState.FAILED, error.message, error.remedy)
            return
        if self._budget is None:
            self._budget = RestartBudget(launch.settings.restart)
        self._begin(run)

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
            await self._preflight_failed(run, report.error.message, report.error.remedy)
        elif failed:
            more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
            await self._preflight_failed(run, f"{failed[0].name}: {failed[0].message}{more}", failed[0].remedy)
        else:
            await self._spawn(run)

    async def _preflight_failed(self, run: Run, reason: str, remedy: str | None) -> None:
        await self._end(run, ServerState.FAILED, f"preflight: {reason}", remedy)

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
        self._record(run.record)
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

    def _process_died(self, run: Run, report: m.ProcessDied) -> None:
        run.died = report.who
        if self.info.state.is_serving:
            self._judge(run)

    async def _answers_ready(self, run: Run, report: m.AnswersReady) -> None:
        if self.info.state is not ServerState.STARTING:
            return
        # A fast start is ready before the follower has looked: its last steps are still in the log.
        if run.log is not None:
            self._log_lines(run, m.LogLines(run.number, run.log.follow()))
        now = time.time()
        run.steps.finish(now)
        self._ever_ready = True
        if run.record.ready_at is None:
            run.record.ready_at, run.record.step_seconds = now, run.steps.seconds
            self._record(run.record)
        self.info = replace(self.info, ready_at=run.record.ready_at, steps=run.steps.steps(now))
        self._serve_run(run, report)
        if not run.adopted:
            run.needs_mode = not self.modes.apply_again(run)

    def _serve_run(self, run: Run, report: m.AnswersReady) -> None:
        run.was_ready, run.ready_since = True, time.time()
        run.answered_at = run.ready_since
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
        if report.answered:
            run.answered_at = time.time()
        if report.info is not None:
            run.judge_patch(report.info)
            self._take_info(run)
            self.modes.observe_info(run)
        if run.needs_mode and self.info.state.is_serving:
            run.needs_mode = not self.modes.apply_again(run)
        if self.info.state.is_serving:
            self._judge(run)

    def _judge(self, run: Run) -> None:
        now = time.time()
        page_at = run.meter.page.at if run.meter.page else run.ready_since
        problem = Health(
            died=run.died,
            patch=run.patch,
            patch_reason=run.patch_reason,
            patch_expected=bool(run.settings.modes),
            ready_failures=run.ready_failures,
            metrics_age=now - page_at,
            metrics_error=run.metrics_error,
            frozen_for=run.meter.frozen_for(),
            silent_for=now - max(run.answered_at, run.meter.progressed_at),
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
        self._record(record)

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
