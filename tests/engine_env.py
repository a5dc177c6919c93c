"""Where the tests find the CPU engine's environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def engine_python() -> Path:
    """Interpreter of the engine's environment, from SPECCTL_ENGINE_PYTHON; skips the test where there is none."""
    value = os.environ.get("SPECCTL_ENGINE_PYTHON")
    if not value:
        pytest.skip("SPECCTL_ENGINE_PYTHON names no engine environment (scripts/test makes one)")
    return Path(value)
