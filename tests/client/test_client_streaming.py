from pathlib import Path

import pytest

from client.contract_daemon import ContractDaemon
from specctl.client import streaming
from specctl.client.codec import ApiVersionError
from specctl.client.streaming import AsyncClient, Disconnected
from specctl.core.api import ModeRequest, StartRequest
from specctl.core.errors import NoDaemon, Refused, WaitTimeout
from specctl.core.events import Event, EventKind
from specctl.core.snapshot import Snapshot


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(streaming, "LAST_RETRY_S", 0.02)


async def test_reads_and_sends(daemon: ContractDaemon) -> None:
    async with AsyncClient(daemon.socket) as client:
        assert await client.snapshot() == daemon.snapshot
        assert (await client.set_mode(ModeRequest(mode="off", reason="r"))).epoch == 7
        assert (await client.logs(tail=2)).lines == daemon.log_lines[-2:]
    assert daemon.requests[1][1] == ModeRequest(mode="off", reason="r")


async def test_errors_are_those_of_the_blocking_client(daemon: ContractDaemon) -> None:
    def refuse(_: object) -> None:
        raise Refused("read-only", remedy="ask")

    daemon.on["POST /v1/server/start"] = refuse
    daemon.raw["GET /v1/history"] = (200, b"[]")
    async with AsyncClient(daemon.socket) as client:
        with pytest.raises(Refused, match=r"read-only\. ask"):
            await client.start(StartRequest(profile="x"))
        with pytest.raises(ApiVersionError):
            await client.history()
        daemon.close()
        with pytest.raises(NoDaemon, match="no daemon runs at"):
            await client.snapshot()


async def test_an_event_is_never_lost_or_repeated_over_a_reconnect(daemon: ContractDaemon) -> None:
    daemon.add_event(EventKind.NOTE, "one")
    seen: list[int] = []
    markers: list[Disconnected] = []
    async with AsyncClient(daemon.socket) as client:
        async for value in client.stream(after=0, hz=2):
            match value:
                case Event():
                    seen.append(value.id)
                case Disconnected():
                    markers.append(value)
                    if len(markers) == 3:
                        daemon.start()
                case Snapshot() if len(seen) == 1:
                    daemon.close()
                    daemon.add_event(EventKind.NOTE, "while away")
            if len(seen) == 2:
                break
    assert seen == [1, 2]
    assert "1" in daemon.last_event_ids
    assert len({m.since for m in markers}) == 1, "one outage has one beginning"
    assert "no daemon runs at" in markers[-1].reason


async def test_a_stream_of_another_version_is_not_tried_again(daemon: ContractDaemon) -> None:
    daemon.set(version=9)
    async with AsyncClient(daemon.socket) as client:
        with pytest.raises(ApiVersionError):
            async for _ in client.stream():
                pass
    assert daemon.streams == 1


async def test_no_answer_is_a_timeout(socket: Path) -> None:
    import socket as sockets

    with sockets.socket(sockets.AF_UNIX) as listener:
        listener.bind(str(socket))
        listener.listen()
        async with AsyncClient(socket, timeout=0.05) as client:
            with pytest.raises(WaitTimeout):
                await client.snapshot()
