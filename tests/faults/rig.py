"""Drives the real supervisor, or a whole daemon process, against fake_sglang."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specctl.core.api import Accepted, ModeRequest, StartRequest, StopRequest
from specctl.core.events import Event, EventKind
from specctl.core.modes import DEFAULT_MODES
from specctl.core.states import ServerState
from specctl.daemon import messages as m
from specctl.daemon.events import EventLog
from specctl.daemon.launching import Check, Launch, RunSettings
from specctl.daemon.process import MARKER_VARIABLE, PROC, read_stat
from specctl.daemon.reaper import reap_orphans
from specctl.daemon.restart import RestartMode, RestartPolicy
from specctl.daemon.runs import RunStore
from specctl.daemon.snapshots import SnapshotMaker, daemon_info
from specctl.daemon.supervisor import Supervisor

FAKE = Path(__file__).with_name("fake_sglang.py")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class FakeLauncher:
    """Plans fakes. `script`: fields of fake_sglang.Script; `settings`: of RunSettings; `checks`: what preflight says."""

    script: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    argv: tuple[str, ...] | None = None
    check_s: float = 0.0

    def plan(self, request: StartRequest, run_dir: Path, marker: str, port: int | None) -> Launch:
        port = port or free_port()
        script = {"modes": [{"name": mode.name} for mode in DEFAULT_MODES]} | self.script
        settings = {
            "stop_timeout_s": 2.0,
            "drain_s": 0.0,
            "ready_timeout_s": 30.0,
            "flip_timeout_s": 1.0,
            "restart": RestartPolicy(mode=RestartMode.NEVER),
        } | self.settings
        return Launch(
            settings=RunSettings(
                profile=request.profile,
                url=f"http://127.0.0.1:{port}",
                port=port,
                model="models/fake",
                modes=DEFAULT_MODES,
                **settings,
            ),
            argv=self.argv or (sys.executable, str(FAKE), str(port), json.dumps(script)),
            env={**os.environ, "SPECCTL_STATUS_DIR": str(run_dir / "status")},
            run_dir=run_dir,
        )

    def check(self, launch: Launch) -> list[Check]:
        time.sleep(self.check_s)
        return self.checks

    def prepare(self, launch: Launch) -> None:
        pass


@dataclass
class Rig:
    """A supervisor in this process. Leave it with `close`, which stops whatever runs."""

    folder: Path
    daemon_id: str
    launcher: FakeLauncher = field(default_factory=FakeLauncher)

    def __post_init__(self) -> None:
        self.events = EventLog(self.folder / "events.jsonl")
        self.runs = RunStore(self.folder / "runs")
        self.supervisor = Supervisor(self.launcher, self.runs, self.events, daemon_id=self.daemon_id)
        info = daemon_info("test", read_only=False, data_dir=str(self.folder))
        self.snapshots = SnapshotMaker(info, self.supervisor, self.events)
        self._task = asyncio.create_task(self.supervisor.serve())
        self._reaper = asyncio.create_task(self._reap())

    async def _reap(self) -> None:
        while True:
            run = self.supervisor.current
            reap_orphans({run.child.pid} if run and run.child else set())
            await asyncio.sleep(0.05)

    @property
    def info(self):
        return self.supervisor.info

    @property
    def pid(self) -> int:
        assert self.info.pid is not None
        return self.info.pid

    def script(self, **fields: Any) -> None:
        self.launcher.script.update(fields)

    def settings(self, **fields: Any) -> None:
        self.launcher.settings.update(fields)

    async def start(self) -> Accepted:
        return await self.supervisor.ask(m.Start(StartRequest(profile="fake", actor="test")))

    async def stop(self, drain_s: float | None = None) -> Accepted:
        return await self.supervisor.ask(m.Stop(StopRequest(drain_s=drain_s, actor="test")))

    async def restart(self) -> Accepted:
        return await self.supervisor.ask(m.Restart(StopRequest(actor="test")))

    async def mode(self, name: str) -> Accepted:
        return await self.supervisor.ask(m.SetMode(ModeRequest(mode=name, actor="test")))

    async def fake(self, **fields: Any) -> None:
        """Changes the running fake's script."""
        request = urllib.request.Request(f"{self.info.url}/fake", json.dumps(fields).encode(), method="POST")
        await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=5).read())

    async def until(self, condition: Callable[[], Any], what: str = "", timeout: float = 30.0) -> Any:
        """Waits for `condition`; fails with the state and the newest events after `timeout`."""
        deadline = time.monotonic() + timeout
        while not (value := condition()):
            if time.monotonic() > deadline:
                tail = "\n".join(event.message for event in self.events.page(None, 15))
                raise AssertionError(f"no {what or 'success'} in {timeout} s; {self.info}\n{tail}")
            await asyncio.sleep(0.01)
        return value

    async def until_state(self, *states: ServerState, timeout: float = 30.0) -> None:
        await self.until(lambda: self.info.state in states, " or ".join(states), timeout)

    async def up(self) -> None:
        await self.start()
        await self.until_state(ServerState.READY, ServerState.FAILED, ServerState.DEGRADED)
        assert self.info.state is ServerState.READY, self.info

    def states(self) -> list[str]:
        return [e.data["state"] for e in self.events.page(0, 5000) if e.kind is EventKind.STATE]

    def flips(self, epoch: int) -> list[Event]:
        return [e for e in self.events.page(0, 5000) if e.flip is not None and e.flip.epoch == epoch]

    async def flip_end(self, epoch: int) -> Any:
        await self.until(lambda: any(e.flip.state.is_final for e in self.flips(epoch)), f"end of flip {epoch}")
        return self.flips(epoch)[-1].flip

    async def close(self) -> None:
        try:
            if not self.info.state.is_resting and not self._task.done():
                await self.stop(0.0)
                await self.until_state(ServerState.STOPPED, ServerState.FAILED)
        finally:
            self._task.cancel()
            self._reaper.cancel()
            await asyncio.gather(self._task, self._reaper, return_exceptions=True)
            await self.supervisor.detach()
            self.events.close()


def marked(daemon_id: str) -> list[int]:
    """Pids of living processes whose environment carries a marker of this daemon."""
    needle = f"{MARKER_VARIABLE}=".encode()
    found = []
    for path in PROC.iterdir():
        if not path.name.isdigit():
            continue
        try:
            entries = (path / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(e.startswith(needle) and f":{daemon_id}:".encode() in e for e in entries):
            stat = read_stat(int(path.name))
            if stat is not None and not stat.is_zombie:
                found.append(int(path.name))
    return found
