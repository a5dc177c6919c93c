"""`specctl engine install --cpu`: an environment with SGLang for machines without a GPU.

Steps: a virtual environment, torch, then the locked packages. A finished step is recorded and not done again, so an
interrupted install goes on where it stopped.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from specctl.config.paths import Paths
from specctl.core.errors import Refused, SpecctlError, UsageError
from specctl_launch.engines import DEFAULT_SGLANG, cpu_engine_dir
from specctl_launch.probe import free_bytes, versions
from specctl_launch.stamp import Stamp, lock_file, lock_hash, supported

TORCH_VERSION = "2.13.0"
ENGINE_BYTES = 1_700_000_000
NEEDED_BYTES = 4_000_000_000
NEEDED_BYTES_AFTER_TORCH = 1_500_000_000
_GB = 1e9
_LOG = "install.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallProgress:
    """One line of an install's progress. step: 1 to `steps`; 0 before the first. detail: what it does right now."""

    step: int
    steps: int
    name: str
    detail: str
    seconds: float


Report = Callable[[InstallProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    folder: Path
    sglang: str
    torch: str
    torch_index: str
    base_python: str
    report: Report
    started: float
    lock: int

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def tell(self, step: int, name: str, detail: str) -> None:
        seconds = time.monotonic() - self.started
        self.report(InstallProgress(step=step, steps=len(_STEPS), name=name, detail=detail, seconds=seconds))


def install_cpu(
    paths: Paths,
    *,
    sglang: str = DEFAULT_SGLANG,
    torch_version: str = TORCH_VERSION,
    torch_index: str = "",
    python: str = sys.executable,
    progress: Report = lambda _progress: None,
) -> Path:
    """Make or complete the CPU engine environment; returns its folder.

    torch_index: where to get torch from, for machines whose default index has CUDA builds only. python: the
    interpreter that the environment is made with. progress: called for every step and for pip's own news.
    Raises UsageError for a version without a lock, Refused for too little disk or a second install at the same time,
    SpecctlError with pip's last line when a step fails.
    """
    if not lock_file(sglang).is_file():
        raise UsageError(
            f"no list of packages for SGLang {sglang}", remedy=f"Supported versions: {', '.join(supported())}"
        )
    folder = cpu_engine_dir(paths, sglang)
    folder.mkdir(parents=True, exist_ok=True)
    with _only_one(folder) as lock:
        job = _Job(
            folder=folder,
            sglang=sglang,
            torch=torch_version,
            torch_index=torch_index,
            base_python=python,
            report=progress,
            started=time.monotonic(),
            lock=lock,
        )
        stamp = Stamp.read(folder)
        if stamp.lock != lock_hash(sglang):
            _check_disk(job, stamp)
        for step, (name, run) in enumerate(_STEPS, start=1):
            job.tell(step, name, "")
            stamp = run(job, stamp, step)
            stamp.write(folder)
        _verify(job)
    return folder


def _check_disk(job: _Job, stamp: Stamp) -> None:
    free = free_bytes(job.folder)
    needed = NEEDED_BYTES_AFTER_TORCH if stamp.torch else NEEDED_BYTES
    text = f"{free / _GB:.1f} GB free at {job.folder}"
    if free < needed:
        raise Refused(
            f"the engine needs {needed / _GB:.1f} GB of disk while it is installed, {text}",
            remedy="Free some space, or put SPECCTL_HOME on another disk",
        )
    size = f"takes about {ENGINE_BYTES / _GB:.1f} GB with a CPU build of torch, several GB more with a CUDA build"
    job.tell(0, "size", f"{size}; {text}")


def _make_environment(job: _Job, stamp: Stamp, step: int) -> Stamp:
    if stamp.python and job.python.is_file():
        return stamp
    _run(job, step, "environment", [job.base_python, "-m", "venv", str(job.folder)])
    found = versions(job.python, dict(os.environ))
    if isinstance(found, str):
        raise SpecctlError(f"the environment in {job.folder} does not work: {found}", remedy=f"Remove {job.folder}")
    return Stamp(python=found.python)


def _install_torch(job: _Job, stamp: Stamp, step: int) -> Stamp:
    wanted = f"{job.torch} {job.torch_index}".strip()
    if stamp.torch == wanted:
        return stamp
    source = ["--index-url", job.torch_index] if job.torch_index else []
    _run(job, step, "torch", [*_pip(job), *source, f"torch=={job.torch}"])
    job.tell(step, "torch size", _torch_size(job))
    return replace(stamp, torch=wanted, lock="")


def _install_locked(job: _Job, stamp: Stamp, step: int) -> Stamp:
    digest = lock_hash(job.sglang)
    if stamp.lock == digest:
        return stamp
    command = [*_pip(job), "--no-deps", "--require-hashes", "-r", str(lock_file(job.sglang))]
    _run(job, step, "packages", command)
    return replace(stamp, lock=digest)


_STEPS: tuple[tuple[str, Callable[[_Job, Stamp, int], Stamp]], ...] = (
    ("environment", _make_environment),
    ("torch", _install_torch),
    ("packages", _install_locked),
)


def _pip(job: _Job) -> list[str]:
    # Byte-compiling everything takes most of the time; the first start compiles the small part that is imported.
    return [str(job.python), "-m", "pip", "install", "--no-input", "--no-compile", "--progress-bar", "off"]


def _torch_size(job: _Job) -> str:
    site = next(job.folder.glob("lib/python*/site-packages"))
    size = sum(file.stat().st_size for file in site.rglob("*") if file.is_file() and not file.is_symlink()) / _GB
    cuda = any(site.glob("nvidia*")) or (site / "triton").is_dir()
    hint = ": a CUDA build; --torch-index with an index of CPU builds saves several GB" if cuda else ""
    return f"{size:.1f} GB{hint}"


def _verify(job: _Job) -> None:
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    found = versions(job.python, env)
    if isinstance(found, str) or found.sglang != job.sglang or found.torch is None:
        raise SpecctlError(
            f"the engine in {job.folder} is broken although every step succeeded",
            remedy=f"Remove {job.folder} and install again",
        )
    job.tell(len(_STEPS), "ready", f"SGLang {found.sglang}, torch {found.torch}, Python {found.python}")


def _run(job: _Job, step: int, name: str, command: list[str]) -> None:
    """Run one command; its output goes to the log and, line by line, to the progress report."""
    # Some pip settings of the caller (a target folder, a user install) would put the packages elsewhere.
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_USER")}
    last = ""
    with (job.folder / _LOG).open("a", encoding="utf-8") as log:
        log.write(f"$ {' '.join(command)}\n")
        with subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=(job.lock,),  # should we be killed, pip goes on: the lock must last as long as it does
        ) as process:
            try:
                for line in process.stdout or ():
                    log.write(line)
                    text = line.strip()
                    if text and not text.startswith("WARNING"):
                        last = text if text.startswith("ERROR") or not last.startswith("ERROR") else last
                        job.tell(step, name, text)
            except BaseException:
                process.terminate()
                raise
    if process.returncode:
        raise SpecctlError(
            f"installing the engine failed at step {step} ({name}): {last or f'exit {process.returncode}'}",
            remedy=f"See {job.folder / _LOG}; run it again to go on, or remove {job.folder} to start over",
        )


@contextmanager
def _only_one(folder: Path) -> Iterator[int]:
    with (folder / "install.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Refused(f"another install is at work in {folder}", remedy="Wait for it to end") from error
        yield handle.fileno()
