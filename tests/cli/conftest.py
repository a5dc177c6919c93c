import gc
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from client.contract_daemon import ContractDaemon
from specctl.cli.main import main


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """SPECCTL_HOME in a folder with a short name: the socket below it must fit the kernel's limit."""
    with tempfile.TemporaryDirectory(prefix="specctl-") as folder:
        monkeypatch.setenv("SPECCTL_HOME", folder)
        monkeypatch.delenv("SPECCTL_SOCKET", raising=False)
        monkeypatch.setenv("LOGNAME", "ana")
        monkeypatch.delenv("SUDO_USER", raising=False)
        yield Path(folder)


@pytest.fixture
def daemon(home: Path) -> Iterator[ContractDaemon]:
    (home / "run").mkdir(mode=0o700)
    with ContractDaemon(home / "run" / "specctld.sock") as running:
        yield running


@pytest.fixture
def specctl(home: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Outcome]]:
    """Run a command in this process: exit code, standard output, standard error."""
    before = signal.getsignal(signal.SIGTERM)

    def run(*words: str) -> Outcome:
        capfd.readouterr()
        code = main(words)
        return Outcome(code, *capfd.readouterr())

    yield run
    signal.signal(signal.SIGTERM, before)
    gc.enable()


@pytest.fixture
def spawn(home: Path) -> Callable[..., "subprocess.Popen[str]"]:
    """Start a command as a process of its own."""

    def start(*words: str, **env: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "specctl.cli.main", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **env},
        )

    return start
