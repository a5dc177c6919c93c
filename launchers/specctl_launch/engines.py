"""Engine environments: which interpreter runs SGLang, and whether the environments that specctl made are whole."""

from __future__ import annotations

import os
from pathlib import Path

from specctl.config.paths import Paths
from specctl.config.profile import Profile
from specctl.core.errors import Refused
from specctl_launch.checks import CheckResult, fail, ok, warn
from specctl_launch.probe import versions
from specctl_launch.stamp import Stamp, lock_hash

DEFAULT_SGLANG = "0.5.23"
INSTALL_COMMAND = "specctl engine install --cpu"


def cpu_engine_dir(paths: Paths, sglang: str = DEFAULT_SGLANG) -> Path:
    return paths.engines_dir / f"cpu-{sglang}"


def planned_python(profile: Profile, paths: Paths) -> Path:
    """The interpreter that the profile means, whether it exists or not."""
    if profile.engine.python:
        return Path(profile.engine.python).expanduser().absolute()
    return paths.engines_dir / f"{profile.engine.kind}-{profile.engine.sglang}" / "bin" / "python"


def engine_python(profile: Profile, paths: Paths) -> Path:
    """The interpreter to run. Raises Refused with the remedy when it is not there."""
    python = planned_python(profile, paths)
    if problem := engine_problem(profile, python):
        raise problem
    return python


def engine_problem(profile: Profile, python: Path) -> Refused | None:
    """Why `python` cannot be started as the profile's engine, or None. It is not run."""
    engine = profile.engine
    if python.is_file():
        return _unfinished(python) if not engine.python else None
    if engine.python:
        return Refused(
            f"engine.python: {python} does not exist", remedy="Name the interpreter of an environment that has SGLang"
        )
    if engine.kind == "cpu":
        return Refused(
            f"no CPU engine with SGLang {engine.sglang} is installed", remedy=f"Run `{_install_command(engine.sglang)}`"
        )
    return Refused(
        "engine.python is empty, and specctl installs CPU engines only",
        remedy="Set engine.python to the interpreter of an environment that has SGLang",
    )


def check(paths: Paths) -> list[CheckResult]:
    """One result for each engine environment below the data folder: whole, unfinished or broken."""
    folders = sorted(paths.engines_dir.glob("cpu-*")) if paths.engines_dir.is_dir() else []
    if not folders:
        return [warn("engine cpu", f"no engine is installed in {paths.engines_dir}", f"Run `{INSTALL_COMMAND}`")]
    return [_check_one(folder) for folder in folders]


def _check_one(folder: Path) -> CheckResult:
    name, sglang = f"engine {folder.name}", folder.name.removeprefix("cpu-")
    again = f"Run `{_install_command(sglang)}`; if it fails again, remove {folder} first"
    python = folder / "bin" / "python"
    if problem := _unfinished(python):
        return fail(name, problem.message, problem.remedy)
    found = versions(python, {key: value for key, value in os.environ.items() if key != "PYTHONPATH"})
    if isinstance(found, str):
        return fail(name, found, again)
    if found.sglang != sglang or found.torch is None:
        return fail(name, f"{folder} has SGLang {found.sglang or '-'} and torch {found.torch or '-'}", again)
    if Stamp.read(folder).lock != lock_hash(sglang):
        return warn(name, f"{folder} was made from an older list of packages", again)
    return ok(name, f"SGLang {found.sglang}, torch {found.torch}, Python {found.python} in {folder}")


def _unfinished(python: Path) -> Refused | None:
    folder = python.parent.parent
    if Stamp.read(folder).lock:
        return None
    return Refused(
        f"the engine in {folder} is not completely installed",
        remedy=f"Run `{_install_command(folder.name.removeprefix('cpu-'))}`: it goes on where it stopped",
    )


def _install_command(sglang: str) -> str:
    return INSTALL_COMMAND if sglang == DEFAULT_SGLANG else f"{INSTALL_COMMAND} --sglang {sglang}"
