"""The daemon's routes as values, shared by both clients: method, target, body, type of the reply."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from specctl.client.codec import encode
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
from specctl.core.snapshot import Snapshot

T = TypeVar("T")


class Call(NamedTuple, Generic[T]):
    method: str
    target: str
    body: bytes | None
    reply: type[T]

    @property
    def what(self) -> str:
        """For messages: the route without its query."""
        return f"{self.method} {self.target.partition('?')[0]}"


def _get(path: str, reply: type[T], query: dict[str, object] | None = None) -> Call[T]:
    given = {name: value for name, value in (query or {}).items() if value is not None}
    return Call("GET", path + _query(given), None, reply)


def _query(given: dict[str, object]) -> str:
    if not given:
        return ""
    from urllib.parse import urlencode

    return f"?{urlencode(given)}"


def _post(path: str, body: object) -> Call[Accepted]:
    return Call("POST", path, encode(body), Accepted)


def snapshot() -> Call[Snapshot]:
    return _get("/v1/snapshot", Snapshot)


def events(after: int | None, limit: int | None) -> Call[EventPage]:
    return _get("/v1/events", EventPage, {"after": after, "limit": limit})


def logs(run: int | None, start: int | None, tail: int | None, grep: str | None, limit: int | None) -> Call[LogPage]:
    return _get("/v1/logs", LogPage, {"run": run, "from": start, "tail": tail, "grep": grep, "limit": limit})


def history(seconds: float | None) -> Call[HistoryPage]:
    return _get("/v1/history", HistoryPage, {"seconds": seconds})


def stream(after: int | None, hz: float | None) -> str:
    given: dict[str, object] = {}
    if after is not None:
        given["after"] = after
    if hz is not None:
        given["hz"] = hz
    return "/v1/stream" + _query(given)


def set_mode(request: ModeRequest) -> Call[Accepted]:
    return _post("/v1/mode", request)


def start(request: StartRequest) -> Call[Accepted]:
    return _post("/v1/server/start", request)


def stop(request: StopRequest) -> Call[Accepted]:
    return _post("/v1/server/stop", request)


def restart(request: StopRequest) -> Call[Accepted]:
    return _post("/v1/server/restart", request)


def drain(request: StopRequest) -> Call[Accepted]:
    return _post("/v1/server/drain", request)


def shutdown(request: StopRequest) -> Call[Accepted]:
    return _post("/v1/daemon/shutdown", request)


def note(request: NoteRequest) -> Call[Accepted]:
    return _post("/v1/notes", request)
