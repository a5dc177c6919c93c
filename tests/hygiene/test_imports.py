"""The walls between the rooms, and what the hot path must not load: looked at in fresh interpreters."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {
    "textual",
    "pydantic",
    "httpx",
    "fastapi",
    "uvicorn",
    "starlette",
    "rich",
    "typer",
    "http.client",
    "psutil",
    "pynvml",
}


def modules_after(code: str, **env: str) -> set[str]:
    script = f"{code}\nimport sys\nprint('\\n'.join(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, **env}, check=True
    )
    return set(done.stderr.split())


def test_every_import_contract_holds() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


@pytest.mark.parametrize("words", [["status"], ["status", "--json"], ["mode"], ["mode", "chain", "--wait", "--json"]])
def test_the_hot_commands_load_nothing_heavy(words: list[str], tmp_path: Path) -> None:
    code = f"from specctl.cli.main import main\nassert main({words!r}) == 3"
    loaded = modules_after(code, SPECCTL_HOME=str(tmp_path), SPECCTL_SOCKET="")
    assert "specctl.client.blocking" in loaded
    assert not loaded & HEAVY


def test_other_commands_load_no_interface_and_no_server(tmp_path: Path) -> None:
    code = "from specctl.cli.main import main\nassert main(['stop']) == 3"
    loaded = modules_after(code, SPECCTL_HOME=str(tmp_path), SPECCTL_SOCKET="")
    assert "typer" in loaded
    assert not loaded & {"textual", "httpx", "fastapi", "uvicorn", "rich", "psutil", "pynvml"}
    assert not {m for m in loaded if m.startswith(("specctl.daemon", "specctl.telemetry", "specctl.tui"))}


def test_core_loads_nothing_of_specctl_but_core() -> None:
    code = "import importlib, pkgutil, specctl.core as core\n"
    code += "[importlib.import_module(m.name) for m in pkgutil.walk_packages(core.__path__, 'specctl.core.')]"
    loaded = modules_after(code)
    assert "specctl.core.snapshot" in loaded
    assert {m for m in loaded if m.startswith("specctl")} == {
        m for m in loaded if m in ("specctl", "specctl.core") or m.startswith("specctl.core.")
    }


def test_the_engine_patch_loads_nothing_of_specctl() -> None:
    loaded = modules_after("import specctl_engine")
    assert "specctl_engine" in loaded
    assert not {m for m in loaded if m.split(".")[0] in ("specctl", "specctl_launch", "pydantic", "msgspec", "typer")}
