"""Run folders: `runs/N/run.json` is what a restarted daemon needs to find and prove the server it lost."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from specctl.daemon.launching import RunSettings
from specctl.daemon.process import Identity


@dataclass(slots=True, kw_only=True)
class RunRecord:
    """Everything about one run that outlives the daemon. `outcome` None = it has not ended, as far as we know."""

    run: int
    profile: str
    marker: str
    url: str
    overrides: dict[str, str] = field(default_factory=dict)
    argv: list[str] = field(default_factory=list)
    pid: int = 0
    start_ticks: int = 0
    boot_id: str = ""
    started_at: float = 0.0
    ready_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    outcome: str | None = None
    restarts: int = 0
    settings: RunSettings | None = None
    step_seconds: dict[str, float] = field(default_factory=dict)

    @property
    def identity(self) -> Identity:
        return Identity(self.pid, self.start_ticks, self.boot_id)


class RunStore:
    """The runs of one state folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def numbers(self) -> list[int]:
        try:
            return sorted(int(p.name) for p in self.folder.iterdir() if p.name.isdigit())
        except FileNotFoundError:
            return []

    def path(self, run: int) -> Path:
        return self.folder / str(run)

    def create(self) -> tuple[int, Path]:
        """A fresh run number and its folder (0700)."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        run = (self.numbers() or [0])[-1] + 1
        while True:
            try:
                self.path(run).mkdir(mode=0o700)
            except FileExistsError:
                run += 1
            else:
                return run, self.path(run)

    def write(self, record: RunRecord) -> None:
        """Replaces run.json in one step: a reader or a crash never sees half of it."""
        target = self.path(record.run) / "run.json"
        temporary = target.with_suffix(".json.new")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(record), indent=1))
        temporary.replace(target)

    def read(self, run: int) -> RunRecord | None:
        """The record, or None where there is none or it is damaged."""
        try:
            return msgspec.json.decode((self.path(run) / "run.json").read_bytes(), type=RunRecord)
        except (OSError, msgspec.DecodeError):
            return None

    def unfinished(self) -> list[RunRecord]:
        """Records of runs whose end nobody saw, newest first."""
        records = (self.read(run) for run in reversed(self.numbers()))
        return [r for r in records if r is not None and r.outcome is None and r.pid > 0]

    def usual_seconds(self, profile: str) -> dict[str, float]:
        """How long each start step took in the newest run of this profile that became ready."""
        for run in list(reversed(self.numbers()))[:20]:
            record = self.read(run)
            if record and record.profile == profile and record.ready_at is not None and record.step_seconds:
                return dict(record.step_seconds)
        return {}

    def prune(self, keep: int) -> None:
        """Removes the oldest run folders beyond `keep`; never one whose end is not known."""
        for run in self.numbers()[: -max(1, keep)]:
            record = self.read(run)
            if record is None or record.outcome is not None:
                with suppress(OSError):
                    shutil.rmtree(self.path(run))
