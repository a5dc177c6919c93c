"""Every failure of the API is an ErrorBody under the key `error`, one line, with the status of its class."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from specctl.core.errors import SpecctlError, UsageError

log = logging.getLogger(__name__)


def json_response(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


def error_response(error: SpecctlError, status: int | None = None) -> Response:
    return json_response({"error": error.body()}, status or error.http_status)


def _one_line(errors: Sequence[Any]) -> str:
    """The first thing that is wrong with a request: where, what came, what was expected."""
    first = errors[0]
    where = ".".join(str(part) for part in first.get("loc", ())[1:]) or str(first.get("loc", ("request",))[0])
    given = first.get("input")
    shown = f" {given!r}"[:80] if isinstance(given, str | int | float | bool) else ""
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{where}{shown}: {first.get('msg', 'is not valid')}{more}"


def install(app: FastAPI) -> None:
    """Registers the handlers; after that no route answers with anything but its reply or an ErrorBody."""

    @app.exception_handler(SpecctlError)
    async def known(_request: Request, error: SpecctlError) -> Response:
        return error_response(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> Response:
        return error_response(UsageError(_one_line(error.errors())))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return error_response(UsageError(f"{request.method} {request.url.path}: {error.detail}"), error.status_code)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        log.error("%s %s", request.method, request.url.path, exc_info=error)
        return error_response(SpecctlError(f"internal error: {error!r}"[:300], remedy="See daemon.log"))
