"""`specctl doctor`: everything that a start needs, looked at; nothing is changed."""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

from specctl.cli.connect import locate
from specctl.cli.output import clean, data, data_json
from specctl.client.blocking import Client
from specctl.config.paths import Paths
from specctl.core.errors import NoDaemon, SpecctlError
from specctl.core.exitcodes import ExitCode
from specctl.core.snapshot import Snapshot
from specctl_launch import engines
from specctl_launch.checks import CheckResult, CheckStatus, fail, ok, warn
from specctl_launch.render import render_checks

OLDEST_PYTHON = (3, 11)
FULL_BYTES, LOW_BYTES = 200_000_000, 5_000_000_000
SMALLEST_SCREEN = (80, 24)
DISTRIBUTION = "specctl-console"


def doctor(*, json: bool, socket: str | None) -> int:
    """Print one line a check. Exit 1 when any failed."""
    results = list(_all(locate(socket)))
    if json:
        data_json(results)
    else:
        for line in render_checks(results):
            data(clean(line))
    failed = any(result.status is CheckStatus.FAIL for result in results)
    return int(ExitCode.FAILED if failed else ExitCode.OK)


def _all(where: Paths) -> Iterator[CheckResult]:
    yield python_check(sys.version_info[:3])
    yield from _packages()
    yield from folder_checks(where)
    yield from disk_checks(where)
    result, snapshot = _daemon(where)
    yield result
    yield from engines.check(where)
    yield gpu_check(snapshot, shutil.which)
    yield _terminal()


def python_check(version: tuple[int, ...]) -> CheckResult:
    text = ".".join(map(str, version))
    if version < OLDEST_PYTHON:
        return fail("python", f"{text} is too old", "Install specctl with Python 3.11 or newer")
    return ok("python", f"{text} at {sys.executable}")


def _packages() -> Iterator[CheckResult]:
    try:
        required = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        yield fail("packages", f"{DISTRIBUTION} is not installed", f"Run `pip install {DISTRIBUTION}`")
        return
    found: list[str] = []
    for requirement in required:
        if "extra ==" in requirement:
            continue
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            yield fail("packages", f"{name} is missing", f"Run `pip install {DISTRIBUTION}` again")
    yield ok("packages", ", ".join([f"{DISTRIBUTION} {metadata.version(DISTRIBUTION)}", *found]))


def folder_checks(where: Paths) -> Iterator[CheckResult]:
    """Whether specctl can write where it has to. A folder that is not there yet counts by the one above it."""
    named = ("config_dir", "data_dir", "state_dir", "runtime_dir")
    for name in named:
        folder: Path = getattr(where, name)
        label = f"folder {name.removesuffix('_dir')}"
        existing = _existing(folder)
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
            yield fail(label, f"{folder} cannot be written", f"Make {existing} writable or set SPECCTL_HOME")
        else:
            yield ok(label, f"{folder}" + ("" if folder.is_dir() else " (made when it is needed)"))
    runtime = where.runtime_dir
    if runtime.is_dir() and stat.S_IMODE(runtime.stat().st_mode) & 0o077:
        yield fail("folder runtime", f"{runtime} is open to other users", f"Run `chmod 700 {runtime}`")


def disk_checks(where: Paths) -> Iterator[CheckResult]:
    """Room for logs and engines; one line for each disk."""
    seen: set[int] = set()
    for folder in (where.state_dir, where.data_dir):
        existing = _existing(folder)
        device = existing.stat().st_dev
        if device in seen:
            continue
        seen.add(device)
        free = shutil.disk_usage(existing).free
        text = f"{free / 1e9:.1f} GB free at {existing}"
        if free < FULL_BYTES:
            yield fail("disk", text, "Free some space: logs and the history cannot be written")
        elif free < LOW_BYTES:
            yield warn("disk", text, "Logs fit, an engine environment may not")
        else:
            yield ok("disk", text)


def _existing(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _daemon(where: Paths) -> tuple[CheckResult, Snapshot | None]:
    try:
        snapshot = Client(where.socket).snapshot()
    except NoDaemon as error:
        if isinstance(error.__cause__, FileNotFoundError | ConnectionRefusedError):
            return ok("daemon", f"none runs at {where.socket}"), None
        return fail("daemon", error.message, error.remedy), None
    except SpecctlError as error:
        return fail("daemon", error.message, error.remedy), None
    info = snapshot.daemon
    return ok("daemon", f"version {info.version}, pid {info.pid}, server {snapshot.server.state}"), snapshot


def gpu_check(snapshot: Snapshot | None, which: Callable[[str], str | None]) -> CheckResult:
    """What the running daemon reads from NVML; without one, whether a driver seems to be there."""
    if snapshot is not None:
        if snapshot.gpus:
            return ok("gpu", f"{len(snapshot.gpus)} GPUs: {', '.join(sorted({gpu.name for gpu in snapshot.gpus}))}")
        return warn("gpu", snapshot.gpu_note or "the daemon sees no GPU", "Without GPUs only CPU engines run")
    if which("nvidia-smi"):
        return ok("gpu", "an NVIDIA driver is installed")
    return warn("gpu", "nvidia-smi is not on PATH", "Without a driver only CPU engines run, GPU readings stay dashes")


def _terminal() -> CheckResult:
    if not sys.stdout.isatty():
        return ok("terminal", "standard output is not a terminal: plain text")
    size = shutil.get_terminal_size()
    term, encoding = os.environ.get("TERM", ""), (sys.stdout.encoding or "").lower()
    text = f"{term or 'no TERM'}, {size.columns}x{size.lines}, {encoding}"
    if term in ("", "dumb"):
        return warn("terminal", text, "The console needs a TERM such as xterm-256color")
    if (size.columns, size.lines) < SMALLEST_SCREEN or size.lines < SMALLEST_SCREEN[1]:
        return warn("terminal", text, "The console is made for 80x24 and larger")
    if "utf" not in encoding:
        return warn("terminal", text, "Set a UTF-8 locale, else charts are drawn in ASCII")
    return ok("terminal", text)
