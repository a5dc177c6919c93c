"""Runs in the engine's interpreter: makes the operators importable the way the overlay does."""

from __future__ import annotations

import sys
from pathlib import Path

_LAUNCHERS = Path(__file__).parents[3] / "launchers"
sys.path[:0] = [str(_LAUNCHERS / "specctl_engine" / "cpu" / "site"), str(_LAUNCHERS), str(Path(__file__).parent)]

from hypothesis import settings  # noqa: E402

# No deadline: the first call of an operator compiles nothing, but a loaded machine stalls any of them.
settings.register_profile("operators", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("operators")
