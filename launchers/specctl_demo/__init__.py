"""The demo model as package data: a tiny Llama target, its EAGLE-3 draft head, prompts of three grades, checksums.

Standard library only, so that a launcher can ask for the folders without torch. Made by scripts/build_demo_model.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

_ROOT = Path(__file__).resolve().parent
_REMEDY = "reinstall specctl-console, or restore the file from its repository"


def target_dir() -> Path:
    """Folder of the target in Hugging Face layout, for `--model-path`. Serve it as float32."""
    return _ROOT / "target"


def draft_dir() -> Path:
    """Folder of the EAGLE-3 head, for `--speculative-draft-model-path`."""
    return _ROOT / "draft"


def prompts() -> dict[str, tuple[str, ...]]:
    """Prompts by grade: `low`, `medium`, `high` (how well the draft predicts what follows) and `chat`.

    The first three are plain text for completions; `chat` ones are contents of a user message. Each goes on for
    hundreds of tokens.
    """
    data: dict[str, list[str]] = json.loads((_ROOT / "prompts.json").read_text(encoding="utf-8"))
    return {grade: tuple(texts) for grade, texts in data.items()}


def verify(root: Path = _ROOT) -> None:
    """Compare every file of SHA256SUMS below `root` with its checksum.

    Raises ValueError naming the first file that is missing, unreadable or different, and the remedy.
    """
    for line in _read(root, "SHA256SUMS").decode("utf-8").splitlines():
        expected, _, name = line.partition("  ")
        found = hashlib.sha256(_read(root, name)).hexdigest()
        if found != expected:
            raise ValueError(f"demo model file {root / name} has sha256 {found}, expected {expected}: {_REMEDY}")


def _read(root: Path, name: str) -> bytes:
    try:
        return (root / name).read_bytes()
    except OSError as error:
        raise ValueError(f"demo model file {root / name} cannot be read ({error.strerror}): {_REMEDY}") from error
