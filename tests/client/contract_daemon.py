"""A daemon of nothing but the API's contract: real HTTP over a real Unix socket, its answers set by the test."""

from __future__ import annotations

import socketserver
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from specctl.core.api import (
    Accepted,
    EventPage,
    HistoryPage,
    LogPage,
    ModeRequest,
    NoteRequest,
    StartRequest,
    StopRequest,
)
from specctl.core.errors import SpecctlError
from specctl.core.events import Event, EventKind, HistoryPoint, LogLine
from specctl.core.modes import DEFAULT_MODES
from specctl.core.snapshot import (
    DaemonInfo,
    EngineNumbers,
    Flip,
    ModeInfo,
    Reading,
    ServerInfo,
    Snapshot,
    SpeculationInfo,
)
from specctl.core.states import FlipCause, FlipState, ServerState


def ready_snapshot(**changes: Any) -> Snapshot:
    base = Snapshot(
        seq=1,
        at=1000.0,
        daemon=DaemonInfo(version="0.1.0", pid=0, host="box", started_at=900.0),
        server=ServerInfo(
            state=ServerState.READY,
            since=940.0,
            profile="demo-cpu",
            model="demo",
            draft="demo-draft",
            url="http://127.0.0.1:30000",
            run=3,
            pid=4242,
            started_at=930.0,
            ready_at=940.0,
        ),
        speculation=SpeculationInfo(
            mode="tree",
            epoch=1,
            cause=FlipCause.BOOT,
            ranks=1,
            modes=tuple(ModeInfo(mode=mode) for mode in DEFAULT_MODES),
        ),
        engine=EngineNumbers(running=Reading(value=2, age=0.2), queued=Reading(value=0, age=0.2)),
    )
    return replace(base, **changes)


def stopped_snapshot() -> Snapshot:
    return replace(ready_snapshot(), server=ServerInfo(), speculation=SpeculationInfo(), engine=EngineNumbers())


class ContractDaemon:
    """Answers from its attributes. `on` maps "POST /v1/mode" to a function of the decoded request that replaces the
    default answer; it may raise a SpecctlError. `raw` maps a route to (status, body bytes) sent as they are."""

    def __init__(self, socket: Path, snapshot: Snapshot | None = None) -> None:
        self.socket = socket
        self._snapshot = snapshot or ready_snapshot()
        self._events: list[Event] = []
        self.requests: list[tuple[str, Any]] = []
        self.log_lines = [LogLine(run=3, number=n, text=f"line {n}", at=1000.0 + n) for n in range(10)]
        self.on: dict[str, Callable[[Any], Any]] = {}
        self.raw: dict[str, tuple[int, bytes]] = {}
        self.changed = threading.Condition()
        self.streams = 0
        self.last_event_ids: list[str | None] = []
        self.is_closing = False
        self._drop_streams = 0
        self._server: socketserver.ThreadingUnixStreamServer | None = None

    def __enter__(self) -> ContractDaemon:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        self.is_closing = False
        self.socket.unlink(missing_ok=True)
        handler = type("Handler", (_Handler,), {"daemon": self})
        self._server = socketserver.ThreadingUnixStreamServer(str(self.socket), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        with self.changed:
            self.is_closing = True
            self.changed.notify_all()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        self.socket.unlink(missing_ok=True)

    def drop_streams(self) -> None:
        with self.changed:
            self._drop_streams += 1
            self.changed.notify_all()

    @property
    def snapshot(self) -> Snapshot:
        return replace(self._snapshot, last_event_id=len(self._events))

    def set(self, **changes: Any) -> None:
        """New parts of the snapshot, at once for every stream."""
        with self.changed:
            self._snapshot = replace(self._snapshot, seq=self._snapshot.seq + 1, **changes)
            self.changed.notify_all()

    def set_state(self, state: ServerState, **server: Any) -> None:
        """The server's state, with the event that a daemon sends for it."""
        with self.changed:
            self._add(EventKind.STATE, state)
            self.set(server=replace(self._snapshot.server, state=state, **server))

    def add_event(self, kind: EventKind, message: str, flip: Flip | None = None) -> int:
        with self.changed:
            return self._add(kind, message, flip)

    def finish_flip(self, flip: Flip) -> None:
        """The flip's event, and the snapshot that goes with it."""
        with self.changed:
            self._add(EventKind.FLIP, flip.state, flip)
            pending = None if flip.state.is_final else flip
            mode = flip.to_mode if flip.state is FlipState.CONFIRMED else self._snapshot.speculation.mode
            self.set(
                speculation=replace(
                    self._snapshot.speculation,
                    mode=mode,
                    pending=pending,
                    last_flip=flip if flip.state.is_final else self._snapshot.speculation.last_flip,
                )
            )

    def _add(self, kind: EventKind, message: str, flip: Flip | None = None) -> int:
        event = Event(id=len(self._events) + 1, at=time.time(), kind=kind, message=message, flip=flip)
        self._events.append(event)
        self.changed.notify_all()
        return event.id

    def accept(self, epoch: int | None = None) -> Accepted:
        return Accepted(after_event=len(self._events), epoch=epoch)


_BODIES: dict[str, type] = {
    "/v1/mode": ModeRequest,
    "/v1/server/start": StartRequest,
    "/v1/server/stop": StopRequest,
    "/v1/server/restart": StopRequest,
    "/v1/server/drain": StopRequest,
    "/v1/daemon/shutdown": StopRequest,
    "/v1/notes": NoteRequest,
}


class _Handler(BaseHTTPRequestHandler):
    daemon: ContractDaemon
    protocol_version = "HTTP/1.1"

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        if url.path == "/v1/stream":
            with suppress(BrokenPipeError, ConnectionResetError):
                self._stream(query)
            return
        self._answer(f"GET {url.path}", query)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = msgspec.json.decode(body, type=_BODIES[self.path])
        self._answer(f"POST {self.path}", request)

    def _answer(self, route: str, request: Any) -> None:
        daemon = self.daemon
        daemon.requests.append((route, request))
        if route in daemon.raw:
            status, body = daemon.raw[route]
            self._send(status, body)
            return
        try:
            reply = daemon.on[route](request) if route in daemon.on else self._default(route, request)
        except SpecctlError as error:
            self._send(error.http_status, msgspec.json.encode({"error": error.body()}))
        else:
            self._send(202 if route.startswith("POST") else 200, msgspec.json.encode(reply))

    def _default(self, route: str, request: Any) -> object:
        daemon = self.daemon
        match route:
            case "GET /v1/snapshot":
                return daemon.snapshot
            case "GET /v1/events":
                limit = int(request.get("limit", 100))
                events = [e for e in daemon._events if e.id > int(request.get("after", 0))]
                return EventPage(events=events[:limit], last_id=len(daemon._events))
            case "GET /v1/logs":
                return self._logs(request)
            case "GET /v1/history":
                return HistoryPage(points=[HistoryPoint(at=1.0, mode="tree")])
        return daemon.accept(7 if route == "POST /v1/mode" else None)

    def _logs(self, query: dict[str, str]) -> LogPage:
        lines = [line for line in self.daemon.log_lines if line.number >= int(query.get("from", 0))]
        if "tail" in query:
            lines = lines[-int(query["tail"]) :]
        lines = lines[: int(query.get("limit", 1000))]
        following = lines[-1].number + 1 if lines else int(query.get("from", 0))
        return LogPage(run=3, lines=[x for x in lines if query.get("grep", "") in x.text], next_number=following)

    def _send(self, status: int, body: bytes) -> None:
        with suppress(BrokenPipeError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def _stream(self, query: dict[str, str]) -> None:
        daemon = self.daemon
        resume = self.headers.get("Last-Event-ID")
        after = int(resume or query.get("after", len(daemon._events)))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with daemon.changed:
            daemon.streams += 1
            daemon.last_event_ids.append(resume)
            drop, seq = daemon._drop_streams, -1
            daemon.changed.notify_all()
        while True:
            with daemon.changed:
                fresh = [e for e in daemon._events if e.id > after]
                snapshot = daemon.snapshot if daemon.snapshot.seq != seq else None
                if not fresh and snapshot is None:
                    daemon.changed.wait(1)
                if daemon.is_closing or drop != daemon._drop_streams:
                    self.wfile.write(b"0\r\n\r\n")
                    self.close_connection = True
                    return
            for event in fresh:
                after = event.id
                self._chunk(f"id: {event.id}\nevent: event\ndata: ".encode() + msgspec.json.encode(event) + b"\n\n")
            if snapshot is not None:
                seq = snapshot.seq
                self._chunk(b": comment\nevent: snapshot\ndata: " + msgspec.json.encode(snapshot) + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        # Two pieces: a client must not take a block for a message.
        for part in (data[:7], data[7:]):
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            self.wfile.flush()
