"""The routes. Requests are validated here; what they mean is the supervisor's business."""

from __future__ import annotations

import pwd
from dataclasses import replace
from typing import Annotated, Any, TypeVar

from fastapi import Depends, FastAPI, Header, Query, Request
from fastapi.responses import Response, StreamingResponse

from specctl.core.api import (
    API_VERSION,
    Accepted,
    EventPage,
    HistoryPage,
    LogPage,
    ModeRequest,
    NoteRequest,
    StartRequest,
    StopRequest,
)
from specctl.core.errors import ErrorBody, Refused, UsageError
from specctl.core.snapshot import Snapshot
from specctl.daemon import messages as m
from specctl.daemon.api import errors
from specctl.daemon.api.errors import json_response
from specctl.daemon.api.metrics import prometheus_text
from specctl.daemon.api.stream import sse
from specctl.daemon.service import Service

Body = TypeVar("Body", StartRequest, StopRequest, ModeRequest, NoteRequest)
NOTE_LIMIT = 2000
REASON_LIMIT = 500  # every snapshot carries it
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": dict[str, ErrorBody]} for status in (403, 409, 422, 500, 502, 503, 504)
}


def _user(request: Request) -> str:
    uid = request.scope.get("specctl.peer_uid")
    if uid is None:
        return "unknown"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _signed(body: Body, request: Request) -> Body:
    """The request with who sent it: the peer's user, and the name it gives itself beside it."""
    user, given = _user(request), "".join(c for c in body.actor if c.isprintable())[:64]
    return replace(body, actor=user if given in ("", user) else f"{user} ({given})")


def create_app(service: Service) -> FastAPI:
    """The ASGI application. With `service.read_only` every command is refused, whoever sends it."""
    app = FastAPI(
        title="specctl daemon",
        version=str(API_VERSION),
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/openapi.json",
        responses=_ERRORS,
    )
    errors.install(app)
    _add_readings(app, service)
    _add_commands(app, service)
    return app


def _add_readings(app: FastAPI, service: Service) -> None:
    @app.get("/v1/snapshot", response_model=Snapshot)
    async def snapshot() -> Response:
        return json_response(service.snapshots.make())

    @app.get("/v1/events", response_model=EventPage)
    async def events(
        after: Annotated[int | None, Query(ge=0)] = None, limit: Annotated[int, Query(ge=0, le=5000)] = 100
    ) -> Response:
        return json_response(EventPage(events=service.events.page(after, limit), last_id=service.events.last_id))

    @app.get("/v1/stream", response_class=StreamingResponse)
    async def stream(
        after: Annotated[int | None, Query(ge=0)] = None,
        hz: Annotated[float, Query(gt=0, le=10)] = 1.0,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> StreamingResponse:
        if last_event_id is not None and last_event_id.isascii() and last_event_id.isdigit():
            after = int(last_event_id)
        headers = {"Cache-Control": "no-store"}
        return StreamingResponse(sse(service, after, hz), media_type="text/event-stream", headers=headers)

    @app.get("/v1/logs", response_model=LogPage)
    async def logs(
        run: Annotated[int | None, Query(ge=1)] = None,
        start: Annotated[int | None, Query(alias="from", ge=0)] = None,
        tail: Annotated[int | None, Query(ge=0)] = None,
        grep: Annotated[str | None, Query(max_length=1000)] = None,
        limit: Annotated[int, Query(ge=1, le=5000)] = 1000,
    ) -> Response:
        return json_response(await service.log_page(run, start, tail, grep, limit))

    @app.get("/v1/history", response_model=HistoryPage)
    async def history(seconds: Annotated[float, Query(gt=0, le=86400)] = 3600.0) -> Response:
        return json_response(HistoryPage(points=service.history_since(seconds)))

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        return Response(prometheus_text(service.snapshots.make()), media_type="text/plain; version=0.0.4")


def _add_commands(app: FastAPI, service: Service) -> None:
    async def writable() -> None:
        if service.read_only:
            raise Refused("the daemon is read-only", remedy="Start it without --read-only")

    options: dict[str, Any] = {
        "status_code": 202,
        "response_model": Accepted,
        "dependencies": [Depends(writable)],
    }

    async def ask(command: m.Command) -> Response:
        return json_response(await service.supervisor.ask(command), 202)

    @app.post("/v1/mode", **options)
    async def mode(body: ModeRequest, request: Request) -> Response:
        if len(body.reason) > REASON_LIMIT:
            raise UsageError(f"reason: at most {REASON_LIMIT} characters, this one has {len(body.reason)}")
        return await ask(m.SetMode(_signed(body, request)))

    @app.post("/v1/server/start", **options)
    async def start(body: StartRequest, request: Request) -> Response:
        return await ask(m.Start(_signed(body, request)))

    @app.post("/v1/server/stop", **options)
    async def stop(body: StopRequest, request: Request) -> Response:
        return await ask(m.Stop(_signed(_checked(body), request)))

    @app.post("/v1/server/restart", **options)
    async def restart(body: StopRequest, request: Request) -> Response:
        return await ask(m.Restart(_signed(_checked(body), request)))

    @app.post("/v1/server/drain", **options)
    async def drain(body: StopRequest, request: Request) -> Response:
        return await ask(m.Stop(_signed(_checked(body), request), drain=True))

    @app.post("/v1/daemon/shutdown", **options)
    async def shutdown(body: StopRequest, request: Request) -> Response:
        return await ask(m.Stop(_signed(_checked(body), request), end_daemon=True))

    @app.post("/v1/notes", **options)
    async def notes(body: NoteRequest, request: Request) -> Response:
        if not body.text.strip() or len(body.text) > NOTE_LIMIT:
            raise UsageError(f"text: a note has 1 to {NOTE_LIMIT} characters, this one {len(body.text)}")
        return await ask(m.Note(_signed(body, request)))


def _checked(body: StopRequest) -> StopRequest:
    """A finite, not negative drain. pydantic takes the dataclass as it is, which knows no bounds."""
    if body.drain_s is not None and not 0 <= body.drain_s <= 86400:
        raise UsageError(f"drain_s {body.drain_s:g}: must be between 0 and 86400 seconds")
    return body
