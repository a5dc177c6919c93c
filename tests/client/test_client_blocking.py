import socket as sockets
import threading
import time
from itertools import islice
from pathlib import Path

import pytest

from client.contract_daemon import ContractDaemon
from specctl.client.blocking import Client
from specctl.client.codec import ApiVersionError
from specctl.core.api import ModeRequest, NoteRequest, StartRequest, StopRequest
from specctl.core.errors import InvalidProfile, NoDaemon, Refused, SpecctlError, WaitTimeout
from specctl.core.events import Event, EventKind
from specctl.core.snapshot import Snapshot


def test_reads_every_page(daemon: ContractDaemon) -> None:
    client = Client(daemon.socket)
    daemon.add_event(EventKind.NOTE, "one")
    daemon.add_event(EventKind.NOTE, "two")
    assert client.snapshot() == daemon.snapshot
    assert [e.message for e in client.events(after=1).events] == ["two"]
    assert client.logs(run=3, start=2, tail=4, limit=2).lines == daemon.log_lines[6:8]
    assert client.history(60).points[0].mode == "tree"
    assert daemon.requests[1][1] == {"after": "1"}, "what is not given is not sent"
    assert daemon.requests[2][1] == {"run": "3", "from": "2", "tail": "4", "limit": "2"}


def test_foreign_text_in_a_query_arrives_as_it_was(daemon: ContractDaemon) -> None:
    Client(daemon.socket).logs(grep="a&b=\u00e9 c\r\nX: y")
    assert daemon.requests[0][1] == {"grep": "a&b=\u00e9 c\r\nX: y"}


def test_sends_every_command(daemon: ContractDaemon) -> None:
    client = Client(daemon.socket)
    stop = StopRequest(drain_s=5.0, actor="ana")
    start = StartRequest(profile="p", overrides={"a.b": "c"})
    assert client.set_mode(ModeRequest(mode="chain")).epoch == 7
    for call in (client.stop, client.restart, client.drain, client.shutdown):
        assert call(stop).epoch is None
    client.start(start)
    client.note(NoteRequest(text="hello"))
    assert [route for route, _ in daemon.requests] == [
        "POST /v1/mode",
        "POST /v1/server/stop",
        "POST /v1/server/restart",
        "POST /v1/server/drain",
        "POST /v1/daemon/shutdown",
        "POST /v1/server/start",
        "POST /v1/notes",
    ]
    assert daemon.requests[1][1] == stop
    assert daemon.requests[5][1] == start


def test_no_socket_and_a_dead_socket_are_no_daemon(socket: Path) -> None:
    with pytest.raises(NoDaemon, match="no daemon runs at") as found:
        Client(socket).snapshot()
    assert found.value.exit_code == 3
    assert "specctl up PROFILE" in (found.value.remedy or "")
    dead = sockets.socket(sockets.AF_UNIX)
    dead.bind(str(socket))
    with pytest.raises(NoDaemon, match="no daemon runs at"):
        Client(socket).snapshot()
    dead.close()


def test_the_daemons_refusal_keeps_its_class(daemon: ContractDaemon) -> None:
    def refuse(_: object) -> None:
        raise InvalidProfile("profile x: bad", remedy="mend it")

    daemon.on["POST /v1/server/start"] = refuse
    with pytest.raises(InvalidProfile, match=r"profile x: bad\. mend it"):
        Client(daemon.socket).start(StartRequest(profile="x"))


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, b'{"seq": 1}', ApiVersionError),
        (200, b"not json", ApiVersionError),
        (200, b"\xff\xfe", ApiVersionError),
        (404, b'{"detail": "Not Found"}', ApiVersionError),
        (500, b"Internal Server Error", SpecctlError),
        (409, b'{"error": {"kind": "from the future", "message": "m"}}', SpecctlError),
        (409, b'{"error": {"kind": "refused", "message": "m", "exit_code": 4, "new": 1}}', Refused),
    ],
)
def test_replies_that_do_not_fit_are_one_line(
    daemon: ContractDaemon, status: int, body: bytes, kind: type[SpecctlError]
) -> None:
    daemon.raw["GET /v1/snapshot"] = (status, body)
    with pytest.raises(SpecctlError) as found:
        Client(daemon.socket).snapshot()
    assert type(found.value) is kind
    assert "\n" not in str(found.value)


def test_a_snapshot_of_another_version_is_refused(daemon: ContractDaemon) -> None:
    daemon.set(version=2)
    with pytest.raises(ApiVersionError, match="snapshot version 2"):
        Client(daemon.socket).snapshot()


def test_a_daemon_that_does_not_answer_is_a_timeout(socket: Path) -> None:
    with sockets.socket(sockets.AF_UNIX) as listener:
        listener.bind(str(socket))
        listener.listen()
        with pytest.raises(WaitTimeout, match="did not answer GET /v1/snapshot"):
            Client(socket, timeout=0.05).snapshot()


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"SMTP ready\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a" * 100_000,
    ],
)
def test_a_broken_reply_is_no_daemon(socket: Path, reply: bytes) -> None:
    with sockets.socket(sockets.AF_UNIX) as listener:
        listener.bind(str(socket))
        listener.listen()

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(NoDaemon) as found:
            Client(socket, timeout=5).snapshot()
        thread.join()
    assert "\n" not in str(found.value)


def test_stream_resumes_after_an_event_and_mixes_snapshots(daemon: ContractDaemon) -> None:
    for text in ("one", "two", "three"):
        daemon.add_event(EventKind.NOTE, text)
    values = list(islice(Client(daemon.socket).stream(after=1, hz=4), 3))
    assert [v.message for v in values if isinstance(v, Event)] == ["two", "three"]
    assert [v for v in values if isinstance(v, Snapshot)] == [daemon.snapshot]


def test_stream_ends_at_its_deadline(daemon: ContractDaemon) -> None:
    with pytest.raises(WaitTimeout):
        list(Client(daemon.socket).stream(deadline=time.monotonic() + 0.1))


def test_stream_of_a_daemon_that_goes_away_is_no_daemon(daemon: ContractDaemon) -> None:
    stream = Client(daemon.socket).stream()
    assert isinstance(next(stream), Snapshot)
    daemon.close()
    with pytest.raises(NoDaemon):
        list(stream)
