"""The supervisor: one task owns the server's state. Everyone else sends it messages and reads what it publishes.

Its parts, each in a file of its own: what it owns (`state`), how a run comes up (`starting`), how it ends (`ending`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from specctl.core.api import Accepted
from specctl.core.errors import SpecctlError
from specctl.core.events import EventKind
from specctl.core.states import ServerState
from specctl.daemon import messages as m
from specctl.daemon.ending import Ending

log = logging.getLogger(__name__)


class Supervisor(Ending):
    """Obeys commands and reports, one at a time."""

    async def ask(self, command: m.Command) -> Accepted:
        """Hands a command to the owner; returns what it said, or raises the SpecctlError it refused with."""
        self._inbox.put_nowait(command)
        return await command.reply

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
                name = type(message).__name__
                log.exception("while handling %s", name)
                self._events.add(EventKind.ALERT, f"internal error while handling {name}: {error!r}"[:300])
                self._fail_command(message, SpecctlError(f"internal error: {error!r}", remedy="See daemon.log"))

    @staticmethod
    def _fail_command(message: m.Command | m.Report, error: SpecctlError) -> None:
        if isinstance(message, m.Command) and not message.reply.done():
            message.reply.set_exception(error)
        elif not isinstance(message, m.Command):
            log.error("%s: %s", type(message).__name__, error)

    def end_soon(self) -> None:
        """The daemon was told to end: a stop under way is finished first, unless it is told again."""
        if self.info.state in (ServerState.DRAINING, ServerState.STOPPING) and self._then != self.ended.set:
            self._then = self.ended.set
        else:
            self.ended.set()

    async def detach(self) -> None:
        """Lets the server run on; a later daemon adopts it."""
        if self.current is not None:
            await self.current.close()

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


_HANDLERS: dict[type[m.Report], Callable[..., Any]] = {
    m.PreflightDone: Supervisor._preflight_done,
    m.LogLines: Supervisor._log_lines,
    m.LogAlert: Supervisor._log_alert,
    m.ProcessDied: Supervisor._process_died,
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
