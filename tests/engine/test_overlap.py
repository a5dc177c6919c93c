"""The same flips with the overlap scheduler on: results lag a round behind, and finished rows have one round more."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from engine.real_server import MODES, real_server
from engine.traffic import Outcome, Request, differences, run_with_flips

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


def test_text_and_kv_under_flips_with_overlap(
    tmp_path: Path, requests_: list[Request], reference: list[Outcome]
) -> None:
    environment = {
        "SPECCTL_CPU_OVERLAP": "1",
        # SGLang's own checks: KV accounting after every round, and a retraction every few rounds.
        "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "1",
        "SGLANG_TEST_RETRACT": "1",
    }
    with real_server(tmp_path, environment=environment) as server:
        outcomes, _ = asyncio.run(run_with_flips(server, requests_, 6, modes=MODES, every_s=0.03))
        assert differences(reference, outcomes) == []
        retracted = sum(int(number) for number in re.findall(r"#retracted_reqs: (\d+)", server.log()))
        assert retracted > 0
        report = server.specctl()
        assert report["flips"] > 20
        # A request's first token comes from a prefill, and so does the first one after each retraction.
        delivered = sum(max(0, len(outcome.tokens) - 1) for outcome in outcomes if not outcome.aborted)
        assert sum(row["committed_tokens"] for row in report["by_mode"].values()) + retracted >= delivered
        server.flush_cache()
        assert server.used_tokens() == 0
