"""The operator's whole job on the real engine: what `scripts/demo --check` proves, with this suite's engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine_env import engine_python
from specctl.config.load import shipped_folder

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]


def test_flips_by_command_are_confirmed_change_no_text_and_leave_nothing(tmp_path: Path) -> None:
    profiles = tmp_path / "config" / "profiles"
    profiles.mkdir(parents=True)
    shipped = (shipped_folder() / "demo-cpu.toml").read_text()
    ours = shipped.replace('kind = "cpu"', f'kind = "cpu"\npython = {json.dumps(str(engine_python()))}')
    assert ours != shipped
    (profiles / "demo-cpu.toml").write_text(ours)
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "demo_check.py")],
        env={**os.environ, "SPECCTL_HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout[-2000:]
    summary = json.loads(done.stdout)
    assert summary["ok"]
    assert [(flip["to_mode"], flip["state"]) for flip in summary["flips"]] == [
        ("chain", "confirmed"),
        ("off", "confirmed"),
        ("tree", "confirmed"),
    ]
    assert all(0 < flip["engine_ms"] <= flip["latency_ms"] for flip in summary["flips"])
    assert summary["greedy_texts"] == {"compared": 12, "changed": 0}
    assert summary["left_running"] == []
