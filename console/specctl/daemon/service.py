"""The parts that the API serves from, and the log reader that stands between them and the disk."""

from __future__ import annotations

import asyncio
import time

from specctl.core.api import LogPage
from specctl.core.errors import UsageError
from specctl.core.events import HistoryPoint
from specctl.daemon.events import EventLog
from specctl.daemon.limits import TookTooLong, time_limit
from specctl.daemon.logs import RunLog
from specctl.daemon.runs import RunStore
from specctl.daemon.snapshots import SnapshotMaker
from specctl.daemon.supervisor import Supervisor

GREP_S = 3.0


class Service:
    """What the routes may use. `closing` is set when the daemon is about to end."""

    def __init__(
        self,
        supervisor: Supervisor,
        snapshots: SnapshotMaker,
        events: EventLog,
        runs: RunStore,
        *,
        read_only: bool = False,
    ) -> None:
        self.supervisor, self.snapshots, self.events = supervisor, snapshots, events
        self.read_only = read_only
        self.closing = asyncio.Event()
        self._runs = runs
        self._old: RunLog | None = None
        self._lock = asyncio.Lock()

    def history_since(self, seconds: float) -> list[HistoryPoint]:
        return self.snapshots.history.since(time.time() - seconds)

    async def log_page(
        self, run: int | None, start: int | None, tail: int | None, grep: str | None, limit: int
    ) -> LogPage:
        """Lines of a run's log; `run` None = the newest. Raises UsageError for an unknown run or a bad `grep`."""
        current = self.supervisor.current
        if run is None:
            run = current.number if current is not None else next(reversed(self._runs.numbers()), None)
        if run is None:
            return LogPage(run=0, lines=[], next_number=1)
        async with self._lock:
            if current is not None and current.number == run and current.log is not None:
                # The live log is shared with its follower, so it is read in the event loop; a scan is bounded by
                # the size of the kept files.
                current.log.refresh()
                return _page(current.log, start, tail, grep, limit)
            old = await asyncio.to_thread(self._open_old, run)
            return _page(old, start, tail, grep, limit)

    def _open_old(self, run: int) -> RunLog:
        if self._old is None or self._old.run != run:
            if run not in self._runs.numbers():
                raise UsageError(f"run {run} does not exist", remedy="Leave out the run for the newest")
            if self._old is not None:
                self._old.close()
            self._old = RunLog(run, self._runs.path(run))
            self._old.finished = True
        self._old.refresh()
        return self._old


def _page(log: RunLog, start: int | None, tail: int | None, grep: str | None, limit: int) -> LogPage:
    """A page of `log`, searched in the event loop's thread: only there can a search be broken off."""
    if not grep:
        return log.page(start, tail=tail, limit=limit)
    try:
        with time_limit(GREP_S):
            return log.page(start, tail=tail, grep=grep, limit=limit)
    except TookTooLong as error:
        raise UsageError(
            f"grep {grep!r} took longer than {GREP_S:g} s and was broken off",
            remedy="Use an expression without repeats inside repeats",
        ) from error
