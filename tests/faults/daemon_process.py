"""A daemon as a process of its own, and requests to its socket."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

PROGRAM = Path(__file__).with_name("fake_daemon.py")


class DaemonProcess:
    """One SPECCTL_HOME; daemons may come and go in it."""

    def __init__(self, home: Path, **options: Any) -> None:
        self.home, self.options = home, options
        self.env = {**os.environ, "SPECCTL_HOME": str(home)}
        self.env.pop("SPECCTL_SOCKET", None)
        self.socket = home / "run" / "specctld.sock"
        self.log = home / "stderr"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.home.mkdir(exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(PROGRAM), json.dumps(self.options)],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.until(lambda: self.ask("GET", "/v1/snapshot")[0] == 200, "daemon")

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        try:
            with httpx.Client(transport=httpx.HTTPTransport(uds=str(self.socket)), timeout=10) as client:
                reply = client.request(method, "http://specctl" + path, json=body)
        except httpx.HTTPError as error:
            return 0, str(error)
        return reply.status_code, reply.json() if reply.content else None

    @property
    def server(self) -> dict[str, Any]:
        return self.ask("GET", "/v1/snapshot")[1]["server"]

    def until(self, condition: Any, what: str, timeout: float = 30.0) -> Any:
        deadline = time.monotonic() + timeout
        while not (value := condition()):
            if time.monotonic() > deadline:
                raise AssertionError(f"no {what}: {self.ask('GET', '/v1/snapshot')}\n{self.log.read_text()[-3000:]}")
            time.sleep(0.03)
        return value

    def until_state(self, *states: str, timeout: float = 30.0) -> dict[str, Any]:
        self.until(lambda: self.server["state"] in states, f"{states}", timeout)
        return self.server

    def up(self) -> dict[str, Any]:
        status, reply = self.ask("POST", "/v1/server/start", {"profile": "fake"})
        assert status == 202, reply
        return self.until_state("READY")

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def down(self) -> int:
        """The way an operator ends it. Returns the daemon's exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.ask("POST", "/v1/daemon/shutdown", {"drain_s": 0})
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
