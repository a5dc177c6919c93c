from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from faults.rig import Rig, marked
from specctl.daemon.reaper import become_subreaper


@pytest.fixture
def daemon_id() -> Iterator[str]:
    """A daemon's name of this test alone. Afterwards no process that carries it may live."""
    become_subreaper()
    name = f"test{uuid.uuid4().hex[:12]}"
    yield name
    left = marked(name)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    time.sleep(0.05 if left else 0)
    assert not left, f"the test left processes behind: {left}"


@pytest.fixture
async def rig(tmp_path: Path, daemon_id: str) -> AsyncIterator[Rig]:
    made = Rig(tmp_path, daemon_id)
    yield made
    await made.close()
