"""A server that runs on although its daemon is gone: found by the record that the daemon kept of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from specctl.config.paths import Paths
from specctl.core.errors import NoDaemon

_START_TICKS = 19  # its place in /proc/PID/stat after the command's name. Source: proc_pid_stat(5)


class Orphan(NamedTuple):
    run: int
    pid: int
    profile: str

    def describe(self) -> str:
        return f"its server still runs (run {self.run}, pid {self.pid}, profile {self.profile})"


def find_orphan(where: Paths) -> Orphan | None:
    """The newest server that a daemon of these folders started and that has not ended, or None."""
    return next((orphan for run in _runs(where) if (orphan := _living(run, where.run_dir(run))) is not None), None)


def is_absent(error: NoDaemon) -> bool:
    """Whether `error` means that no daemon listens, and not that one cannot be reached."""
    return isinstance(error.__cause__, FileNotFoundError | ConnectionRefusedError)


def tell_orphan(error: NoDaemon, where: Paths) -> NoDaemon:
    """The error with what to do where its daemon has left a server behind."""
    orphan = find_orphan(where) if is_absent(error) else None
    if orphan is None:
        return error
    return NoDaemon(
        f"{error.message}, but {orphan.describe()}",
        remedy=f"`specctl up {orphan.profile}` takes it over, `specctl down` ends it",
    )


def _runs(where: Paths) -> Iterator[int]:
    try:
        numbers = [int(path.name) for path in where.runs_dir.iterdir() if path.name.isdigit()]
    except OSError:
        return
    yield from sorted(numbers, reverse=True)


def _living(run: int, folder: Path) -> Orphan | None:
    try:
        record = json.loads((folder / "run.json").read_bytes())
        pid, ticks, boot = int(record["pid"]), int(record["start_ticks"]), record["boot_id"]
        profile, has_ended = str(record["profile"]), record["outcome"] is not None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if has_ended or pid <= 0 or not _is_process(pid, ticks, boot):
        return None
    return Orphan(run, pid, profile)


def _is_process(pid: int, start_ticks: int, boot_id: str) -> bool:
    """Pid, start time and boot together are one process; a zombie does not count."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    return boot == boot_id and fields[0] not in (b"Z", b"X") and int(fields[_START_TICKS]) == start_ticks
