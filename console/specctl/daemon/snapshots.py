"""Puts the parts together: one frozen Snapshot, and one history point a second."""

from __future__ import annotations

import asyncio
import os
import socket
import time

from specctl.core.events import HistoryPoint
from specctl.core.snapshot import DaemonInfo, EngineNumbers, HostNumbers, Snapshot
from specctl.core.states import ServerState
from specctl.daemon.events import EventLog, History
from specctl.daemon.supervisor import Supervisor
from specctl.telemetry.gpu import GpuMonitor
from specctl.telemetry.host import HostMonitor

_DEAD = (ServerState.STOPPED, ServerState.FAILED, ServerState.BACKOFF, ServerState.PREFLIGHT)


class SnapshotMaker:
    """`make` answers at once from what is known; `run` samples the host and writes history at 1 Hz."""

    def __init__(
        self, daemon: DaemonInfo, supervisor: Supervisor, events: EventLog, gpus: GpuMonitor | None = None
    ) -> None:
        self._daemon, self._supervisor, self._events = daemon, supervisor, events
        self._gpus = gpus or GpuMonitor()
        self._host_monitor = HostMonitor()
        self._host, self._host_at = HostNumbers(), 0.0
        self._seq = 0
        self.history = History()

    async def run(self) -> None:
        gpu_task = asyncio.create_task(self._gpus.run())
        try:
            while True:
                run = self._supervisor.current
                self._host = self._host_monitor.sample(run.pids if run else ())
                self.history.add(self._point(self.make()))
                await asyncio.sleep(1.0)
        finally:
            gpu_task.cancel()

    def make(self) -> Snapshot:
        now = time.time()
        self._seq += 1
        supervisor = self._supervisor
        run, server = supervisor.current, supervisor.info
        numbers = EngineNumbers()
        if run is not None and server.state not in _DEAD:
            numbers = run.meter.numbers(now, supervisor.modes.active(run))
        return Snapshot(
            seq=self._seq,
            at=now,
            daemon=self._daemon,
            server=server,
            speculation=supervisor.modes.speculation(run, server, now),
            engine=numbers,
            gpus=self._gpus.gpus(now, run.pids if run else ()),
            gpu_note=self._gpus.note,
            host=self._host,
            last_event_id=self._events.last_id,
        )

    @staticmethod
    def _point(snapshot: Snapshot) -> HistoryPoint:
        engine = snapshot.engine
        busy = [gpu.utilization.value for gpu in snapshot.gpus if gpu.utilization.value is not None]
        fresh = engine.running.age is not None and engine.running.age < 5.0
        return HistoryPoint(
            at=snapshot.at,
            mode=snapshot.speculation.mode,
            tokens_per_second=engine.tokens_per_second.value if fresh else None,
            acceptance_length=engine.acceptance_length.value if fresh else None,
            running=engine.running.value if fresh else None,
            queued=engine.queued.value if fresh else None,
            gpu_utilization=sum(busy) / len(busy) if busy else None,
        )


def daemon_info(version: str, *, read_only: bool, data_dir: str) -> DaemonInfo:
    return DaemonInfo(
        version=version,
        pid=os.getpid(),
        host=socket.gethostname(),
        started_at=time.time(),
        read_only=read_only,
        data_dir=data_dir,
    )
