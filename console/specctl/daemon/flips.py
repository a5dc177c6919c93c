"""One flip from command to read-back. The engine's reply is never believed; what it reads back is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from specctl.core.states import FlipCause
from specctl.daemon.messages import FlipProgress
from specctl.telemetry.engine import EngineClient, EngineError
from specctl.telemetry.pages import MetricsPage, ReadBack, ServerInfoPage

CAUSE_NUMBERS: Mapping[FlipCause, int] = {cause: number for number, cause in enumerate(FlipCause)}
FAST_S, SLOW_S, IDLE_S = 0.03, 0.2, 1.0
_REFUSING = frozenset({400, 401, 403, 404, 422})


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipCommand:
    """received: monotonic clock when the daemon took the operator's command; latency counts from it.

    ranks: how many there are, as far as earlier read-backs tell.
    """

    run: int
    epoch: int
    mode: str
    mode_number: int
    cause: FlipCause
    received: float
    timeout_s: float
    ranks: int = 1

    def values(self) -> dict[str, int]:
        return {
            "specctl_mode": self.mode_number,
            "specctl_epoch": self.epoch,
            "specctl_cause": CAUSE_NUMBERS[self.cause],
        }


def refusal_of(groups: Sequence[ReadBack], epoch: int) -> str | None:
    return next((g.refusal.reason for g in groups if g.refusal is not None and g.refusal.epoch == epoch), None)


def holds(group: ReadBack, command: FlipCommand) -> bool:
    """Whether the group has the command: pending or live."""
    return group.epoch >= command.epoch


def is_live(group: ReadBack, command: FlipCommand) -> bool:
    return group.active_epoch == command.epoch and group.mode == command.mode


def ranks_confirmed(page: MetricsPage, command: FlipCommand) -> tuple[int, int]:
    """(ranks live in the command's epoch and mode, ranks there are)."""
    live = sum(
        epoch == command.epoch and page.active_mode.get(rank, command.mode) == command.mode
        for rank, epoch in page.active_epoch.items()
    )
    return live, max(len(page.active_epoch), command.ranks)


class FlipWatcher:
    """Sends one command and watches until every rank is in the mode, it is refused, or time is up.

    Time runs only while the server works: an idle server is allowed to hold a command for ever, once it has it.
    `is_busy`: whether requests run, as far as the last readings tell.
    """

    def __init__(
        self,
        engine: EngineClient,
        command: FlipCommand,
        report: Callable[[FlipProgress], None],
        is_busy: Callable[[], bool],
    ) -> None:
        self._engine, self._command, self._report, self._is_busy = engine, command, report, is_busy
        self._sent = False
        self._acknowledged = False
        self._waited_for_work = False
        self._refused_without_reason = False
        self._last_error = ""
        self._ranks = (0, 0)

    async def run(self) -> None:
        spent, last = 0.0, time.monotonic()
        while True:
            if not self._sent and await self._send():
                return
            looked = time.monotonic()
            if self._sent and await self._look():
                return
            now = time.monotonic()
            # Before it is acknowledged the server owes an answer, idle or not.
            if not self._acknowledged or self._is_busy():
                spent += now - last
            last = now
            if spent > self._command.timeout_s:
                self._give_up()
                return
            self._waited_for_work |= self._acknowledged and not self._is_busy()
            await asyncio.sleep(self._pause(now - self._command.received, now - looked))

    def _pause(self, elapsed: float, look_s: float) -> float:
        if self._acknowledged and not self._is_busy():
            return IDLE_S
        # The pages are made by the process that also streams tokens: it gets at least as much rest as it had work.
        return max(FAST_S if elapsed < 1.0 else SLOW_S, look_s)

    async def _send(self) -> bool:
        """True when the engine refused for good. A connection that fails is tried again: the epoch makes it safe."""
        try:
            answers = await self._engine.set_state(self._command.values())
        except EngineError as error:
            self._last_error = str(error)
            if error.status in _REFUSING:
                self._refuse(str(error))
                return True
            return False
        self._sent = True
        self._refused_without_reason = not answers or not all(answers)
        return False

    async def _look(self) -> bool:
        # The metrics page tells it rank by rank and costs no round trip through the schedulers.
        page = await self._page()
        if page is not None and page.active_epoch:
            self._ranks = ranks_confirmed(page, self._command)
            if self._ranks[0] == self._ranks[1]:
                return await self._confirm()
        try:
            info = await self._engine.server_info()
        except EngineError as error:
            self._last_error = str(error)
            return False
        if (reason := refusal_of(info.groups, self._command.epoch)) is not None:
            self._refuse(reason, info)
            return True
        if self._refused_without_reason:
            self._refuse("the engine refused the command and gave no reason", info)
            return True
        if page is not None and not page.active_epoch and info.groups:
            self._ranks = sum(is_live(group, self._command) for group in info.groups), len(info.groups)
            if self._ranks[0] == self._ranks[1]:
                return await self._confirm()
        if info.groups and not self._acknowledged and all(holds(group, self._command) for group in info.groups):
            self._acknowledged = True
            self._report(self._progress(acknowledged=True, info=info))
        return False

    async def _page(self) -> MetricsPage | None:
        try:
            return await self._engine.metrics()
        except EngineError as error:
            self._last_error = str(error)
            return None

    async def _confirm(self) -> bool:
        """Every rank has read back in the mode, now. The groups' own account must not contradict it.

        A flip that waited for work has no latency: it would be that of the next request.
        """
        confirmed_at = time.time()
        latency_ms = None
        if not self._waited_for_work:
            latency_ms = round((time.monotonic() - self._command.received) * 1000.0, 1)
        info = None
        with suppress(EngineError):
            info = await self._engine.server_info()
        if info is not None and not all(is_live(group, self._command) for group in info.groups):
            return False
        engine_ms = info.groups[0].engine_ms if info is not None and info.groups else None
        self._report(
            self._progress(
                confirmed_at=confirmed_at,
                latency_ms=latency_ms,
                engine_ms=None if self._waited_for_work else engine_ms,
                info=info,
            )
        )
        return True

    def _refuse(self, reason: str, info: ServerInfoPage | None = None) -> None:
        self._report(self._progress(refusal=reason, info=info))

    def _give_up(self) -> None:
        confirmed, total = self._ranks
        if not self._sent:
            why = f"the command did not reach the engine: {self._last_error}"
        elif confirmed:
            why = f"{confirmed} of {total} ranks read back in {self._command.mode}"
        elif self._acknowledged:
            why = "the engine holds the command but runs no round in the new mode"
        else:
            why = self._last_error or "no read-back names the command"
        self._report(self._progress(gave_up=f"{why}, after {self._command.timeout_s:g} s"))

    def _progress(
        self,
        *,
        acknowledged: bool = False,
        confirmed_at: float | None = None,
        latency_ms: float | None = None,
        engine_ms: float | None = None,
        refusal: str | None = None,
        gave_up: str | None = None,
        info: ServerInfoPage | None = None,
    ) -> FlipProgress:
        return FlipProgress(
            run=self._command.run,
            epoch=self._command.epoch,
            acknowledged=acknowledged,
            confirmed_at=confirmed_at,
            latency_ms=latency_ms,
            engine_ms=engine_ms,
            ranks_confirmed=self._ranks[0],
            ranks_total=self._ranks[1],
            refusal=refusal,
            gave_up=gave_up,
            info=info,
        )
