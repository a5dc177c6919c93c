"""From a serving server to none: stops, exits nobody asked for, back-off and restarts."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from specctl.core.api import Accepted, StartRequest, StopRequest
from specctl.core.errors import Refused
from specctl.core.states import ServerState
from specctl.daemon import messages as m
from specctl.daemon.run import Run
from specctl.daemon.starting import Starting
from specctl.daemon.steps import explain_death, explain_exit
from specctl.daemon.stopper import Stopper


class Ending(Starting):
    """The part of the supervisor that ends a run and decides what follows."""

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
        after = self._log_command("restart", request.actor)
        if self.info.state.is_resting or self.current is None:
            self._start_over(self._request, None)
        else:
            again, port = self._request, self.current.settings.port
            self._then = lambda: self._start_over(again, port)
            self._stop_run(self.current, request.drain_s)
        return Accepted(after_event=after)

    def _start_over(self, request: StartRequest, port: int | None) -> None:
        """An operator's restart: a fresh budget, and a start that fails is FAILED at once."""
        self._ever_ready, self._budget = False, None
        self._begin_again(request, port)

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
            # An adopted server serves before this daemon has heard of it.
            serves = state.is_serving or (run.adopted and run.record.ready_at is not None)
            self._stop_processes(run, drain_s=wanted if serves else 0.0, reason=None)

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

    async def _not_ready_in_time(self, run: Run, report: m.NotReadyInTime) -> None:
        if self.info.state is not ServerState.STARTING:
            return
        run.steps.fail(time.time())
        self._show_steps(run)
        run.ending = f"not ready after {report.seconds:g} s, in step {run.steps.current!r}"
        self._stop_processes(run, drain_s=0.0, reason=run.ending)

    async def _exited(self, run: Run, _report: m.Exited) -> None:
        assert run.child is not None
        assert run.members is not None
        run.exited, run.exit_code = True, run.child.exit_code()
        if run.log is not None and self.info.state is ServerState.STARTING:
            self._log_lines(run, m.LogLines(run.number, run.log.follow()))
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

    async def _preflight_failed(self, run: Run, reason: str, remedy: str | None) -> None:
        """For a restart that nobody asked for, what is wrong may pass (memory that is not back yet)."""
        if self._ever_ready and run.settings.restart.wants(failed=True):
            await self._back_off(run, f"preflight: {reason}")
        else:
            await super()._preflight_failed(run, reason, remedy)

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


def _exit_text(run: Run) -> str:
    code, lines = run.exit_code, run.last_lines(200)
    who = run.died or explain_death(lines)
    if who is not None:
        how = who
    elif code is None:
        how = "ended (its exit code is not known: it was adopted)"
    elif code < 0:
        how = f"killed by signal {-code}" + (" (out of memory?)" if code == -9 else "")
    else:
        how = f"exited with code {code}"
    if not run.was_ready:
        how += f" while {run.steps.current}"
    why = explain_exit(lines)
    return f"{how}: {why}" if why else how


def _remedy(run: Run) -> str:
    return f"`specctl logs --run {run.number} --tail 50` shows the end of its log"
