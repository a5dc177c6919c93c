"""Starting the daemon, detached from this terminal, and waiting until it answers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from specctl.cli.output import clean, say
from specctl.client.blocking import Client
from specctl.config.paths import Paths
from specctl.core.errors import NoDaemon, Refused, WaitTimeout
from specctl.core.snapshot import Snapshot

START_TIMEOUT_S = 30.0
_POLL_S = 0.05
_LOG_TAIL_BYTES = 8192


def ensure_daemon(where: Paths, *, read_only: bool = False) -> tuple[Snapshot, bool]:
    """The daemon's snapshot, and whether this call started it. Raises NoDaemon when it does not come up."""
    client = Client(where.socket)
    try:
        return client.snapshot(), False
    except NoDaemon as error:
        if not _is_absent(error):
            raise
    say("starting the daemon")
    return _start(where, client, read_only)


def _is_absent(error: NoDaemon) -> bool:
    return isinstance(error.__cause__, FileNotFoundError | ConnectionRefusedError)


def _start(where: Paths, client: Client, read_only: bool) -> tuple[Snapshot, bool]:
    process = _spawn(where, read_only)
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        # Asked before the socket is: a daemon that ended because another was faster is no failure.
        ended = process.poll()
        try:
            return client.snapshot(), ended is None
        except NoDaemon:
            if ended is not None:
                why = _last_line(where.daemon_log) or f"exit code {ended}"
                raise NoDaemon(
                    f"the daemon ended while starting: {why}", remedy=f"Its log is {where.daemon_log}"
                ) from None
        time.sleep(_POLL_S)
    process.terminate()
    raise WaitTimeout(
        f"the daemon does not answer {START_TIMEOUT_S:.0f} s after its start", remedy=f"Its log is {where.daemon_log}"
    )


def _spawn(where: Paths, read_only: bool) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "SPECCTL_SOCKET": str(where.socket)}
    argv = [sys.executable, "-m", "specctl.daemon", *(["--read-only"] if read_only else [])]
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
