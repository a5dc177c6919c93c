"""Model folders: the profile's paths, and the word "demo" for the packaged model."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Literal

DEMO = "demo"


def model_folder(value: str, role: Literal["target", "draft"]) -> Path:
    """The folder that `model.target` or `model.draft` names. It need not exist: preflight looks."""
    if value != DEMO:
        return Path(value).expanduser().absolute()
    demo = importlib.import_module("specctl_demo")
    folder: Path = getattr(demo, f"{role}_dir")()
    return folder
