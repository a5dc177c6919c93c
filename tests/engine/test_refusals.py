"""Servers that the patch stays out of: they serve as SGLang does, and say why they cannot be flipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.real_server import real_server

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


def test_a_server_launched_smaller_than_its_modes_serves_unpatched(tmp_path: Path) -> None:
    modes = '[{"name": "tree", "num_steps": 3, "topk": 4, "num_draft_tokens": 16}]'
    with real_server(tmp_path, environment={"SPECCTL_MODES": modes}) as server:
        refused = [status for status in server.statuses() if status["status"] == "refused"]
        assert len(refused) == 1
        assert "launched with 2/4/16" in refused[0]["reason"]
        assert "specctl: patch refused: the server was launched with 2/4/16" in server.log()
        assert "specctl" not in server.internal_states()[0]
        assert server.command(specctl_mode=1, specctl_epoch=1, specctl_cause=0) == [False]
        assert len(server.generate("still serving", 20)["output_ids"]) == 20
