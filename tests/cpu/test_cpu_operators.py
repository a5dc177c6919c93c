"""Runs the tests in `engine_side` with the engine's interpreter, which has torch and sglang but no pytest."""

from __future__ import annotations

import os
import re
import subprocess
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from engine_env import engine_python

ENGINE_SIDE = Path(__file__).parent / "engine_side"


def _with_requirements(names: list[str]) -> set[str]:
    """Names of installed distributions that `names` need, themselves included; extras are left out."""
    found: set[str] = set()
    while names:
        name = names.pop()
        if name in found:
            continue
        try:
            requirements = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        found.add(name)
        names += [re.split(r"[^\w.-]", r, maxsplit=1)[0] for r in requirements if "extra ==" not in r]
    return found


def _link_packages(folder: Path, names: list[str]) -> None:
    """Fill `folder` with links to the top-level modules of `names` and of what they need.

    All of them are pure Python, so another minor version of Python takes them as they are.
    """
    for name in _with_requirements(names):
        package = distribution(name)
        tops = {file.parts[0] for file in package.files or [] if file.suffix == ".py" or ".dist-info" in file.parts[0]}
        for top in tops - {"..", "__pycache__"}:
            if not (folder / top).exists():
                (folder / top).symlink_to(Path(str(package.locate_file(top))))


@pytest.mark.engine
@pytest.mark.timeout(900)
def test_the_operators_do_what_the_reference_does(tmp_path: Path) -> None:
    _link_packages(tmp_path, ["pytest", "hypothesis"])
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "SPECCTL"))} | {
        "PYTHONPATH": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "SGLANG_USE_CPU_ENGINE": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "OMP_NUM_THREADS": "1",
    }
    config = tmp_path / "pytest.ini"
    config.write_text("[pytest]\n")
    arguments = [
        str(ENGINE_SIDE),
        "-q",
        "-x",
        "-c",
        str(config),
        "--rootdir",
        str(ENGINE_SIDE),
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [str(engine_python()), "-m", "pytest", *arguments],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert re.search(r"\d+ passed", done.stdout), done.stdout
    assert "skipped" not in done.stdout, done.stdout
