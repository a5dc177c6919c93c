"""Composes the daemon and keeps it alive: signals, subreaper, tasks, and a clean end."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import signal
from collections.abc import Coroutine
from typing import Any

from specctl import __version__
from specctl.config.paths import Paths
from specctl.core.events import EventKind
from specctl.daemon.api.app import create_app
from specctl.daemon.api.server import ApiServer
from specctl.daemon.events import EventLog
from specctl.daemon.launching import Launcher, ProfileLauncher
from specctl.daemon.reaper import become_subreaper, reap_orphans
from specctl.daemon.runs import RunStore
from specctl.daemon.service import Service
from specctl.daemon.snapshots import SnapshotMaker, daemon_info
from specctl.daemon.socket import BoundSocket
from specctl.daemon.supervisor import Supervisor

log = logging.getLogger(__name__)
_GUARD_S = 2.0
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def daemon_id(where: Paths) -> str:
    """Tells the runs of one state folder from those of another on the same machine; the same after a restart."""
    return hashlib.blake2b(str(where.state_dir.resolve()).encode(), digest_size=6).hexdigest()


class Daemon:
    """All parts of one daemon. `run` returns when it was told to end; the server may outlive it."""

    def __init__(
        self, where: Paths, bound: BoundSocket, *, read_only: bool = False, launcher: Launcher | None = None
    ) -> None:
        where.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.events = EventLog(where.state_dir / "events.jsonl")
        self.runs = RunStore(where.runs_dir)
        self.supervisor = Supervisor(
            launcher or ProfileLauncher(where), self.runs, self.events, daemon_id=daemon_id(where)
        )
        info = daemon_info(__version__, read_only=read_only, data_dir=str(where.state_dir))
        self.snapshots = SnapshotMaker(info, self.supervisor, self.events)
        self.service = Service(self.supervisor, self.snapshots, self.events, self.runs, read_only=read_only)
        self._api = ApiServer(create_app(self.service), bound.listener)
        self._bound = bound
        self._signalled: signal.Signals | None = None

    async def run(self) -> int:
        become_subreaper()
        loop = asyncio.get_running_loop()
        for signum in SIGNALS:
            loop.add_signal_handler(signum, self._on_signal, signum)
        loop.add_signal_handler(signal.SIGCHLD, self._on_child)
        self.events.add(EventKind.DAEMON, f"daemon {__version__} started")
        tasks = [
            self._task("supervisor", self.supervisor.serve()),
            self._task("snapshots", self.snapshots.run()),
            self._task("api", self._api.run()),
            self._task("socket", self._guard_socket()),
        ]
        try:
            await self._until_ended(tasks)
        finally:
            await self._close(tasks)
        return 128 + self._signalled if self._signalled else 0

    @staticmethod
    def _task(name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.create_task(work, name=name)

    async def _until_ended(self, tasks: list[asyncio.Task[None]]) -> None:
        ended = asyncio.create_task(self.supervisor.ended.wait())
        done, _ = await asyncio.wait([ended, *tasks], return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        for task in done:
            if task is not ended and (error := task.exception()) is not None:
                log.critical("%s failed", task.get_name(), exc_info=error)
                self.events.add(EventKind.ALERT, f"daemon part {task.get_name()} failed: {error!r}")

    async def _guard_socket(self) -> None:
        """A daemon whose socket or lock was deleted cannot be reached, and a second one could start beside it."""
        while self._bound.is_ours():  # noqa: ASYNC110 - nobody tells that a file was deleted
            await asyncio.sleep(_GUARD_S)
        self.events.add(
            EventKind.ALERT, f"{self._bound.path} or its lock is gone or not ours any more: the daemon ends"
        )
        self.supervisor.end_soon()

    async def _close(self, tasks: list[asyncio.Task[None]]) -> None:
        run = self.supervisor.current
        left = run is not None and run.child is not None and not self.supervisor.info.state.is_resting
        text = "daemon ends"
        if left and run is not None and run.child is not None:
            text += f"; server pid {run.child.pid} runs on, and a new daemon adopts it"
        self.events.add(EventKind.DAEMON, text)
        self.service.closing.set()
        # Streams see the last event, then the API ends.
        await asyncio.sleep(0.05)
        self._api.stop()
        await asyncio.wait(tasks[2:3], timeout=3.0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.supervisor.detach()
        self.events.close()

    def _on_signal(self, signum: signal.Signals) -> None:
        log.info("%s", signum.name)
        self._signalled = signum
        self.supervisor.end_soon()

    def _on_child(self) -> None:
        run = self.supervisor.current
        known = {run.child.pid} if run is not None and run.child is not None else set()
        reap_orphans(known)


async def run_daemon(where: Paths, bound: BoundSocket, *, read_only: bool) -> int:
    return await Daemon(where, bound, read_only=read_only).run()
