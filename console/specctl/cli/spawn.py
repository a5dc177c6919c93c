"""Starting the daemon, detached from this terminal, and waiting until it answers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from specctl.cli.orphans import is_absent
from specctl.cli.output import clean, say
from specctl.client.blocking import Client
from specctl.config.paths import Paths
from specctl.core.errors import NoDaemon, Refused, WaitTimeout
from specctl.core.snapshot import Snapshot

START_TIMEOUT_S = 30.0
_POLL_S = 0.05
_LOG_TAIL_BYTES = 8192


def live_daemon(client: Client) -> Snapshot | None:
    """The snapshot of the daemon that runs, or None. Raises what else is wrong with its socket or its answer."""
    try:
        return client.snapshot()
    except NoDaemon as error:
        if not is_absent(error):
            raise
        return None


def start_daemon(where: Paths) -> tuple[Snapshot, bool]:
    """Start the daemon: its first snapshot, and whether it is the one started here (another may have been faster).

    Raises NoDaemon with the last line of its log when it ends at once, WaitTimeout when it does not answer.
    """
    say("starting the daemon")
    client = Client(where.socket)
    process = _spawn(where)
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        # Asked before the socket is: a daemon that ended because another was faster is no failure.
        ended = process.poll()
        try:
            snapshot = client.snapshot()
        except NoDaemon:
            if ended is not None:
                why = _last_line(where.daemon_log) or f"exit code {ended}"
                raise NoDaemon(
                    f"the daemon ended while starting: {why}", remedy=f"Its log is {where.daemon_log}"
                ) from None
        else:
            is_ours = snapshot.daemon.pid == process.pid
            if not is_ours:
                # Left alone it would take over as soon as the other one ends, and nobody would know of it.
                process.terminate()
                process.wait()
            return snapshot, is_ours
        time.sleep(_POLL_S)
    process.terminate()
    raise WaitTimeout(
        f"the daemon does not answer {START_TIMEOUT_S:.0f} s after its start", remedy=f"Its log is {where.daemon_log}"
    )


def await_daemon_end(client: Client, before: Snapshot, timeout: float, tell: Callable[[Snapshot], None]) -> None:
    """Return when the socket and the process of the daemon that sent `before` are gone. Raises WaitTimeout."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        try:
            snapshot = client.snapshot()
            is_gone = snapshot.daemon.pid != before.daemon.pid
            tell(snapshot)
        except NoDaemon:
            is_gone = True
        if is_gone and not _is_specctl(before.daemon.pid):
            return
        time.sleep(_POLL_S)
    raise WaitTimeout(
        f"the daemon (pid {before.daemon.pid}) has not ended", remedy="`specctl status` shows what it waits for"
    )


def _is_specctl(pid: int) -> bool:
    """Whether `pid` is a live process of specctl on this host: a zombie or another program's pid is not."""
    try:
        words = (Path("/proc") / str(pid) / "cmdline").read_bytes()
    except OSError:
        return False
    return b"specctl" in words


def _spawn(where: Paths) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "SPECCTL_SOCKET": str(where.socket)}
    argv = [sys.executable, "-m", "specctl.daemon"]
    try:
        where.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with where.daemon_log.open("ab") as log:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=environment,
                # The daemon must not keep the operator's folder busy, nor find modules in it.
                cwd=where.state_dir,
            )
    except OSError as error:
        raise Refused(
            f"the daemon cannot be started: {error.strerror}: {error.filename}",
            remedy=f"Make {where.state_dir} writable or set SPECCTL_HOME",
        ) from error


def _last_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((clean(line).strip() for line in reversed(lines) if line.strip()), "")
