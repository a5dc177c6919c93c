from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.real_server import RealServer, real_server
from engine.traffic import Outcome, Request, mixed_requests, run_traffic


@pytest.fixture(scope="session")
def requests_() -> list[Request]:
    return mixed_requests(seed=1, count=96)


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory, requests_: list[Request]) -> list[Outcome]:
    """What a server without speculation and without the patch answers, one request at a time."""
    with real_server(tmp_path_factory.mktemp("plain"), speculation=False) as server:
        return asyncio.run(run_traffic(server.url, requests_, 1, aborts=False))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, reference: list[Outcome]) -> Iterator[RealServer]:
    """The patched server. Depends on the reference only so that the plain server has ended before this one starts."""
    folder: Path = tmp_path_factory.mktemp("flip")
    with real_server(folder) as running:
        yield running
