"""What is on this machine: versions in an interpreter's environment, who holds a port, free disk."""

from __future__ import annotations

import errno
import json
import shutil
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped, unused-ignore]

_ASK = """
import json, sys
from importlib import metadata
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
print(json.dumps({"python": sys.version.split()[0], "sglang": version("sglang"), "torch": version("torch")}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """What an interpreter has; None = not installed there."""

    python: str
    sglang: str | None
    torch: str | None


def versions(python: Path, env: Mapping[str, str], *, timeout_s: float = 30.0) -> Versions | str:
    """Versions in `python`'s environment, read without importing SGLang; or one line that says why it does not run."""
    try:
        done = subprocess.run(
            [str(python), "-c", _ASK], env=dict(env), capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{python} did not answer within {timeout_s:g} s"
    except OSError as error:
        return f"{python} cannot be run: {error.strerror}"
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit {done.returncode}"]
        return f"{python} does not run: {last[0]}"
    try:
        return Versions(**json.loads(done.stdout.strip().splitlines()[-1]))
    except (ValueError, IndexError, TypeError):
        return f"{python} is not a Python interpreter"


def port_problem(host: str, port: int) -> str | None:
    """Why (host, port) cannot be listened on, with its holder where it can be seen; or None."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As the server itself does: a port in TIME_WAIT is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            probe.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return f"port {port} is taken by {port_holder(port)}"
        return f"cannot listen on {host}:{port}: {error.strerror or error}"
    return None


def port_holder(port: int) -> str:
    """pid and command of whoever listens on `port`; other users' processes are hidden from us."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.Error:
        connections = []
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
            if connection.pid is None:
                break
            return f"pid {connection.pid} ({_command(connection.pid)})"
    return "a process of another user"


def free_bytes(folder: Path) -> int:
    """Free disk space where `folder` is, or will be."""
    there = folder
    while not there.exists():
        there = there.parent
    return shutil.disk_usage(there).free


def _command(pid: int) -> str:
    try:
        words = psutil.Process(pid).cmdline()
    except psutil.Error:
        return "unknown command"
    text = " ".join(words)
    return text if len(text) <= 80 else f"{text[:77]}..."
