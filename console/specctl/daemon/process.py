"""Processes by identity: a pid alone is a name that the kernel gives out again; pid + start time + boot id is not."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from specctl.core.errors import ServerFailed

MARKER_VARIABLE = "SPECCTL_RUN"
PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The fields of /proc/PID/stat that are used. start_ticks: clock ticks after boot. Source: proc_pid_stat(5)."""

    pid: int
    comm: str
    state: str
    ppid: int
    pgid: int
    sid: int
    start_ticks: int

    @property
    def is_zombie(self) -> bool:
        return self.state in ("Z", "X")


@dataclass(frozen=True, slots=True)
class Identity:
    """One process for ever: no other process, before or after, on this boot or another, equals it."""

    pid: int
    start_ticks: int
    boot_id: str


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def read_stat(pid: int) -> ProcessStat | None:
    """The process's stat line, or None when there is no such process."""
    try:
        raw = (PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The command name may hold blanks and parentheses; the last ")" ends it.
    head, _, tail = raw.rpartition(b")")
    comm = head.partition(b"(")[2].decode(errors="replace")
    fields = tail.split()
    if len(fields) < 20:
        return None
    return ProcessStat(
        pid=pid,
        comm=comm,
        state=fields[0].decode(),
        ppid=int(fields[1]),
        pgid=int(fields[2]),
        sid=int(fields[3]),
        start_ticks=int(fields[19]),
    )


def read_marker(pid: int) -> str | None:
    """The run marker in the process's initial environment, or None (also where it may not be read)."""
    try:
        raw = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    prefix = MARKER_VARIABLE.encode() + b"="
    for entry in raw.split(b"\0"):
        if entry.startswith(prefix):
            return entry[len(prefix) :].decode(errors="replace")
    return None


def read_command(pid: int, limit: int = 120) -> str:
    try:
        raw = (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ""
    return " ".join(raw.decode(errors="replace").replace("\0", " ").split())[:limit]


def age_seconds(stat: ProcessStat) -> float:
    """Seconds since the process started."""
    uptime = float((PROC / "uptime").read_text().split()[0])
    return max(0.0, uptime - stat.start_ticks / os.sysconf("SC_CLK_TCK"))


def identify(pid: int) -> Identity | None:
    stat = read_stat(pid)
    return Identity(pid, stat.start_ticks, boot_id()) if stat else None


def is_same(identity: Identity) -> bool:
    """Whether the process still exists, as a running process or as a zombie nobody has waited for."""
    stat = read_stat(identity.pid)
    return stat is not None and stat.start_ticks == identity.start_ticks and boot_id() == identity.boot_id


def is_running(identity: Identity) -> bool:
    """Like is_same, but a zombie counts as exited: it runs nothing and holds nothing."""
    stat = read_stat(identity.pid)
    return (
        stat is not None
        and not stat.is_zombie
        and stat.start_ticks == identity.start_ticks
        and boot_id() == identity.boot_id
    )


def open_pidfd(identity: Identity) -> int | None:
    """A file descriptor that means exactly this process, or None when it is gone. The caller closes it."""
    try:
        fd = os.pidfd_open(identity.pid)
    except OSError:
        return None
    # Checked after opening: the descriptor pins the process, so this answer cannot age.
    if is_same(identity):
        return fd
    os.close(fd)
    return None


def send_signal(identity: Identity, signum: signal.Signals) -> bool:
    """Signals exactly this process; False when it is gone or is not ours to signal."""
    fd = open_pidfd(identity)
    if fd is None:
        return False
    try:
        signal.pidfd_send_signal(fd, signum)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(fd)
    return True


@dataclass(slots=True)
class Child:
    """A server process that this daemon started or adopted. `popen` is None when adopted."""

    identity: Identity
    pidfd: int
    marker: str
    popen: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self.identity.pid

    def exit_code(self) -> int | None:
        """After the process ended: its code, -N for signal N, None when it was adopted (its parent got the code)."""
        return self.popen.poll() if self.popen else None

    def close(self) -> None:
        if self.pidfd >= 0:
            with suppress(OSError):
                os.close(self.pidfd)
            self.pidfd = -1


def start(argv: Sequence[str], env: Mapping[str, str], *, log: Path, cwd: Path | None, marker: str) -> Child:
    """Starts argv in its own session with its output appended to `log`.

    The child writes to a file, not a pipe: it can neither block on a slow reader nor die with the daemon.
    Raises ServerFailed naming the program or the log when it cannot be started.
    """
    environment = {**env, MARKER_VARIABLE: marker}
    # setproctitle, which SGLang's schedulers use, writes its title over the environment unless told not to.
    environment.setdefault("SPT_NOENV", "1")
    try:
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ServerFailed(
            f"the log {log} cannot be made: {error.strerror or error}", remedy="Make room or the folder writable there"
        ) from error
    try:
        popen = subprocess.Popen(
            list(argv),
            env=environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=fd,
            stderr=fd,
            start_new_session=True,
            close_fds=True,
        )
    except OSError as error:
        raise ServerFailed(
            f"cannot start {argv[0]!r}: {error.strerror or error}", remedy="Set engine.python in the profile"
        ) from error
    finally:
        os.close(fd)
    identity = identify(popen.pid)
    if identity is None:  # pragma: no cover - an unwaited child always has a stat line
        raise ServerFailed(f"process {popen.pid} vanished at its start")
    return Child(identity, os.pidfd_open(popen.pid), marker, popen)


def adopt(identity: Identity, marker: str) -> Child | None:
    """The process of an earlier daemon, when pid, start time, boot id and marker all prove that it is ours."""
    fd = open_pidfd(identity)
    if fd is None:
        return None
    if is_running(identity) and read_marker(identity.pid) == marker:
        return Child(identity, fd, marker)
    os.close(fd)
    return None
