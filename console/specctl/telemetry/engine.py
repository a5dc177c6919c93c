"""Asks a running SGLang server for its pages and sends it commands. One request in flight per page, ever."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib.util import find_spec
from typing import Any, TypeVar

import httpx
import msgspec

from specctl.telemetry.pages import (
    MetricsPage,
    ServerInfoPage,
    parse_loads,
    parse_metrics,
    parse_server_info,
)

T = TypeVar("T")

# httpcore tries to import sniffio on every request; a failed search through sys.path costs more than the request.
if find_spec("sniffio") is None:
    sys.modules.setdefault("sniffio", None)  # type: ignore[arg-type]


class EngineError(Exception):
    """A page could not be had: one line that says why. `status` is the HTTP status where there was an answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class EngineClient:
    """HTTP client of one server.

    api_key / admin_key: sent as bearer tokens, never shown. A page that is being fetched is shared by all who ask.
    """

    def __init__(
        self, url: str, *, api_key: str | None = None, admin_key: str | None = None, timeout_s: float = 5.0
    ) -> None:
        self.url = url
        self._admin = {"Authorization": f"Bearer {admin_key or api_key}"} if admin_key or api_key else {}
        headers = {"Authorization": f"Bearer {api_key or admin_key}"} if api_key or admin_key else {}
        self._http = httpx.AsyncClient(
            base_url=url,
            headers=headers,
            timeout=httpx.Timeout(timeout_s, connect=2.0),
            trust_env=False,  # a proxy in the operator's environment must not stand between us and localhost
            limits=httpx.Limits(max_connections=8, max_keepalive_connections=4),
        )
        self._flights: dict[str, asyncio.Task[Any]] = {}

    async def close(self) -> None:
        for task in list(self._flights.values()):
            task.cancel()
        await self._http.aclose()

    async def metrics(self) -> MetricsPage:
        async def fetch() -> MetricsPage:
            body = await self._get("/metrics")
            try:
                return parse_metrics(body.decode("utf-8", errors="replace"), time.time())
            except (ValueError, KeyError) as error:
                raise EngineError(f"/metrics is not Prometheus text: {error}") from error

        return await self._shared("/metrics", fetch)

    async def server_info(self) -> ServerInfoPage:
        """A round trip through every scheduler: ask rarely."""

        async def fetch() -> ServerInfoPage:
            body = await self._get("/server_info")
            try:
                return parse_server_info(body, time.time())
            except ValueError as error:
                raise EngineError(f"/server_info cannot be read: {error}") from error

        return await self._shared("/server_info", fetch)

    async def running_requests(self) -> int:
        """From /v1/loads, the scheduler's own report."""

        async def fetch() -> int:
            body = await self._get("/v1/loads?include=core")
            try:
                return parse_loads(body)
            except ValueError as error:
                raise EngineError(f"/v1/loads cannot be read: {error}") from error

        return await self._shared("/v1/loads", fetch)

    async def ready(self) -> bool:
        """Whether /ready says 200. Raises EngineError when nothing answers."""

        async def fetch() -> bool:
            try:
                await self._get("/ready")
            except EngineError as error:
                if error.status is None:
                    raise
                return False
            return True

        return await self._shared("/ready", fetch)

    async def set_state(self, values: Mapping[str, int]) -> list[bool]:
        """POST /set_internal_state: one answer a scheduler group. True means "taken", never "done"."""
        try:
            reply = await self._http.post(
                "/set_internal_state", json={"server_args": dict(values)}, headers=self._admin
            )
        except httpx.HTTPError as error:
            raise EngineError(f"/set_internal_state: {_why(error)}") from error
        if reply.status_code != httpx.codes.OK:
            raise EngineError(f"/set_internal_state answers {reply.status_code}", reply.status_code)
        try:
            return msgspec.json.decode(reply.content, type=list[bool])
        except msgspec.DecodeError as error:
            raise EngineError(f"/set_internal_state answers something else: {error}") from error

    async def _get(self, path: str) -> bytes:
        try:
            reply = await self._http.get(path)
        except httpx.HTTPError as error:
            raise EngineError(f"{path.partition('?')[0]}: {_why(error)}") from error
        if reply.status_code != httpx.codes.OK:
            raise EngineError(f"{path.partition('?')[0]} answers {reply.status_code}", reply.status_code)
        return reply.content

    async def _shared(self, page: str, fetch: Callable[[], Awaitable[T]]) -> T:
        task = self._flights.get(page)
        if task is None:
            task = asyncio.ensure_future(fetch())
            self._flights[page] = task
            task.add_done_callback(lambda done: self._landed(page, done))
        return await asyncio.shield(task)

    def _landed(self, page: str, task: asyncio.Task[Any]) -> None:
        self._flights.pop(page, None)
        if not task.cancelled():
            task.exception()  # asked for, so that a page nobody waits for any more makes no noise


def _why(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "no answer in time"
    if isinstance(error, httpx.ConnectError):
        return "connection refused"
    return str(error) or type(error).__name__
