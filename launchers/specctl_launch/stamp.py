"""What an engine environment was made from: lock files as package data, and the record of finished install steps."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path

_FILE = "specctl-engine.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """Finished steps of an install, "" = not done.

    python: its version. torch: "version index". lock: SHA-256 of the lock file.
    """

    python: str = ""
    torch: str = ""
    lock: str = ""

    @classmethod
    def read(cls, folder: Path) -> Stamp:
        """The stamp in `folder`; an empty one when there is none or it cannot be understood."""
        try:
            return cls(**json.loads((folder / _FILE).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return cls()

    def write(self, folder: Path) -> None:
        """Replace the stamp at once: a reader sees the old one or the new one."""
        new = folder / f"{_FILE}.new"
        new.write_text(json.dumps(asdict(self)), encoding="utf-8")
        new.replace(folder / _FILE)


def supported() -> list[str]:
    """SGLang versions that a CPU engine can be made of, oldest first."""
    names = [file.stem for file in _locks().glob("engine-cpu-*.lock")]
    return sorted((name.removeprefix("engine-cpu-") for name in names), key=lambda v: [int(p) for p in v.split(".")])


def lock_file(sglang: str) -> Path:
    """The lock of a supported version; the file does not exist for others."""
    return _locks() / f"engine-cpu-{sglang}.lock"


def lock_hash(sglang: str) -> str:
    """SHA-256 of the lock, or "" when this version has none."""
    file = lock_file(sglang)
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def _locks() -> Path:
    return Path(str(resources.files("specctl_launch") / "locks"))
