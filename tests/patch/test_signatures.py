from __future__ import annotations

import sys
from pathlib import Path

import pytest

from specctl_engine import signatures


@pytest.fixture
def engine_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in module whose functions can be given any parameters."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(signatures, "sglang_version", lambda: "0.5.24")
    yield tmp_path
    sys.modules.pop("moved", None)


def test_a_moved_parameter_is_named(engine_source: Path) -> None:
    (engine_source / "moved.py").write_text("class Worker:\n    def draft(self, batch, *, extra=None): ...\n")
    assert signatures.mismatch({"moved.Worker.draft": ("self", "batch", "extra")}) is None
    why = signatures.mismatch({"moved.Worker.draft": ("self", "batch")})
    assert why is not None
    assert "moved.Worker.draft" in why
    assert "0.5.24" in why


def test_a_function_that_is_gone_is_named(engine_source: Path) -> None:
    (engine_source / "moved.py").write_text("class Worker: ...\n")
    assert "moved.Worker.draft" in (signatures.mismatch({"moved.Worker.draft": ("self",)}) or "")
    assert "nowhere.at_all" in (signatures.mismatch({"nowhere.at_all": ("self",)}) or "")


@pytest.mark.parametrize("version", ["0.5.9", "0.5.21", "0.4.99.post1", "unknown"])
def test_an_old_release_is_refused_before_anything_is_read(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signatures, "sglang_version", lambda: version)
    why = signatures.hook_problem()
    assert why is not None
    assert f"SGLang {version} is older than 0.5.22" in why


def test_an_untested_newer_release_is_held_against_the_newest_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signatures, "sglang_version", lambda: "0.6.0")
    assert signatures._tables() == signatures.TESTED["0.5.23"]
