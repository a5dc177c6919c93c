"""Engine environments: where the interpreter is that runs SGLang."""

from __future__ import annotations

from pathlib import Path

from specctl.config.paths import Paths
from specctl.config.profile import Profile
from specctl.core.errors import Refused


def cpu_engine_dir(paths: Paths, sglang: str) -> Path:
    return paths.engines_dir / f"cpu-{sglang}"


def planned_python(profile: Profile, paths: Paths) -> Path:
    """The interpreter that the profile means, whether it exists or not."""
    if profile.engine.python:
        return Path(profile.engine.python).expanduser().absolute()
    return paths.engines_dir / f"{profile.engine.kind}-{profile.engine.sglang}" / "bin" / "python"


def engine_python(profile: Profile, paths: Paths) -> Path:
    """The interpreter to run. Raises Refused with the remedy when it is not there."""
    python = planned_python(profile, paths)
    if python.is_file():
        return python
    if profile.engine.python:
        raise Refused(
            f"engine.python: {python} does not exist", remedy="Name the interpreter of an environment that has SGLang"
        )
    if profile.engine.kind == "cpu":
        raise Refused(
            f"no CPU engine with SGLang {profile.engine.sglang} is installed",
            remedy="Run `specctl engine install --cpu`",
        )
    raise Refused(
        "engine.python is empty and no CUDA engine can be installed by specctl",
        remedy="Set engine.python to the interpreter of an environment that has SGLang",
    )
