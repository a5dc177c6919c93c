"""Ends every process of a run: drain, TERM, KILL, and on until none is left, saying all the while who is."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable

from specctl.daemon.process import is_running, send_signal
from specctl.daemon.reaper import Member, RunMembers

SCAN_S = 0.2
STRAGGLER_GRACE_S = 2.0
Say = Callable[[tuple[str, ...], str | None, bool], None]


class Stopper:
    """One stop. `run` returns when no process of the run is left; `hurry` cuts the drain short.

    `say(blockers, note, term_sent)` is called once a second and when TERM goes out.
    """

    def __init__(self, members: RunMembers, *, drain_s: float, stop_timeout_s: float, say: Say) -> None:
        self._members, self._stop_timeout_s, self._say = members, stop_timeout_s, say
        self._drain_until = time.monotonic() + drain_s
        self._hurried = asyncio.Event()

    def hurry(self, drain_s: float) -> None:
        self._drain_until = min(self._drain_until, time.monotonic() + drain_s)
        self._hurried.set()

    async def run(self) -> None:
        if self._drain_until > time.monotonic():
            await self._drain()
        await self._terminate()
        await self._kill()

    async def sweep(self) -> None:
        """For a run whose first process has died: what it left behind is of no use to anybody."""
        await self._kill()

    async def _scan(self) -> list[Member]:
        return await asyncio.to_thread(self._members.scan)

    async def _drain(self) -> None:
        # TERM to the first process alone: SGLang then lets running requests finish. Its schedulers would die of it.
        send_signal(self._members.root, signal.SIGTERM)
        said = 0.0
        while is_running(self._members.root) and (left := self._drain_until - time.monotonic()) > 0:
            if time.monotonic() - said >= 1.0:
                said = time.monotonic()
                self._say((), f"draining, at most {left:.0f} s more", False)
            self._hurried.clear()
            try:
                await asyncio.wait_for(self._hurried.wait(), min(SCAN_S, left))
            except TimeoutError:
                continue

    async def _terminate(self) -> None:
        self._say((), None, True)
        await asyncio.to_thread(self._members.signal_group, signal.SIGTERM)
        deadline, said = time.monotonic() + self._stop_timeout_s, time.monotonic()
        stragglers_until: float | None = None
        while members := await self._scan():
            now = time.monotonic()
            if now >= deadline:
                return
            if not any(member.stat.pgid == self._members.root.pid for member in members):
                # Only those are left that went away from the group: they never got the TERM.
                if stragglers_until is None:
                    stragglers_until = now + STRAGGLER_GRACE_S
                    await asyncio.to_thread(self._members.signal_all, signal.SIGTERM)
                elif now >= stragglers_until:
                    return
            if now - said >= 1.0:
                said = now
                self._tell(members, f"SIGKILL in {min(deadline, stragglers_until or deadline) - now:.0f} s")
            await asyncio.sleep(SCAN_S / 4)

    async def _kill(self) -> None:
        said = 0.0
        while members := await asyncio.to_thread(self._members.signal_all, signal.SIGKILL):
            if time.monotonic() - said >= 1.0:
                said = time.monotonic()
                self._tell(members, "SIGKILL was sent")
            await asyncio.sleep(SCAN_S / 4)

    def _tell(self, members: list[Member], note: str) -> None:
        self._say(tuple(member.describe() for member in members), note, True)
