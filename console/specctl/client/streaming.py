"""The asynchronous client, for the TUI: the same calls as `blocking.Client`, and a stream that reconnects by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import httpx

from specctl.client import routes, sse
from specctl.client.blocking import SILENCE_S, TIMEOUT_S, no_daemon
from specctl.client.codec import ApiVersionError, decode, decode_message, error_of
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
from specctl.core.errors import NoDaemon, SpecctlError, WaitTimeout
from specctl.core.events import Event
from specctl.core.snapshot import Snapshot

T = TypeVar("T")

FIRST_RETRY_S = 0.25
LAST_RETRY_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnected:
    """The stream has no daemon since `since` (Unix seconds). Sent at each failed try; `reason` is one line."""

    since: float
    reason: str


class AsyncClient:
    """One daemon, by the path of its socket. Close it with `aclose` or `async with`. Raises as `blocking.Client`."""

    def __init__(self, socket: Path, timeout: float = TIMEOUT_S) -> None:
        self.socket = socket
        # No kept connections: one that the daemon closed meanwhile would fail the next call.
        transport = httpx.AsyncHTTPTransport(uds=str(socket), limits=httpx.Limits(max_keepalive_connections=0))
        # trust_env off: a proxy variable of the operator's shell must not redirect a local socket.
        self._http = httpx.AsyncClient(
            transport=transport, base_url="http://specctl", timeout=timeout, trust_env=False, follow_redirects=False
        )

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def snapshot(self) -> Snapshot:
        return await self._call(routes.snapshot())

    async def events(self, after: int | None = None, limit: int | None = None) -> EventPage:
        return await self._call(routes.events(after, limit))

    async def logs(
        self,
        run: int | None = None,
        start: int | None = None,
        tail: int | None = None,
        grep: str | None = None,
        limit: int | None = None,
    ) -> LogPage:
        return await self._call(routes.logs(run, start, tail, grep, limit))

    async def history(self, seconds: float | None = None) -> HistoryPage:
        return await self._call(routes.history(seconds))

    async def set_mode(self, request: ModeRequest) -> Accepted:
        return await self._call(routes.set_mode(request))

    async def start(self, request: StartRequest) -> Accepted:
        return await self._call(routes.start(request))

    async def stop(self, request: StopRequest) -> Accepted:
        return await self._call(routes.stop(request))

    async def restart(self, request: StopRequest) -> Accepted:
        return await self._call(routes.restart(request))

    async def drain(self, request: StopRequest) -> Accepted:
        return await self._call(routes.drain(request))

    async def shutdown(self, request: StopRequest) -> Accepted:
        return await self._call(routes.shutdown(request))

    async def note(self, request: NoteRequest) -> Accepted:
        return await self._call(routes.note(request))

    async def stream(
        self, after: int | None = None, hz: float | None = None
    ) -> AsyncIterator[Event | Snapshot | Disconnected]:
        """Events after `after` and up to `hz` snapshots a second, for ever: resumed after the last event seen.

        A lost daemon is told by `Disconnected` and tried again after 0.25 s, doubling up to 5 s. Raises only
        ApiVersionError, which does not mend itself.
        """
        parser = sse.Parser(last_id="" if after is None else str(after))
        lost_at: float | None = None
        wait = FIRST_RETRY_S
        while True:
            try:
                async for value in self._one_stream(parser, hz):
                    lost_at, wait = None, FIRST_RETRY_S
                    yield value
                reason = "the daemon ended the stream"
            except ApiVersionError:
                raise
            except SpecctlError as error:
                reason = str(error)
            lost_at = time.time() if lost_at is None else lost_at
            yield Disconnected(since=lost_at, reason=reason)
            await asyncio.sleep(wait)
            wait = min(wait * 2, LAST_RETRY_S)

    async def _one_stream(self, parser: sse.Parser, hz: float | None) -> AsyncIterator[Event | Snapshot]:
        what = "GET /v1/stream"
        headers = {"Accept": "text/event-stream"}
        if parser.last_id:
            headers["Last-Event-ID"] = parser.last_id
        parser.restart()
        timeout = httpx.Timeout(TIMEOUT_S, read=SILENCE_S)
        try:
            async with self._http.stream("GET", routes.stream(None, hz), headers=headers, timeout=timeout) as reply:
                if reply.status_code != 200:
                    raise error_of(reply.status_code, await reply.aread(), what)
                async for block in reply.aiter_bytes():
                    for message in parser.feed(block):
                        if (value := decode_message(message)) is not None:
                            yield value
        except httpx.HTTPError as error:
            raise self._error(error, what) from error
        except ValueError as error:
            raise ApiVersionError(what, str(error)) from error

    async def _call(self, call: routes.Call[T]) -> T:
        headers = {"Content-Type": "application/json"} if call.body is not None else {}
        try:
            reply = await self._http.request(call.method, call.target, content=call.body, headers=headers)
        except httpx.HTTPError as error:
            raise self._error(error, call.what) from error
        if reply.status_code >= 400:
            raise error_of(reply.status_code, reply.content, call.what)
        return decode(call.reply, reply.content, call.what)

    def _error(self, error: httpx.HTTPError, what: str) -> SpecctlError:
        if isinstance(error, httpx.TimeoutException):
            return WaitTimeout(f"the daemon at {self.socket} did not answer {what} in time")
        if isinstance(error, httpx.ConnectError):
            return no_daemon(self.socket, _os_error(error))
        return NoDaemon(f"the daemon at {self.socket} broke off its answer to {what}: {error}".rstrip(": "))


def _os_error(error: BaseException) -> OSError:
    """The operating system's error below httpx's, which keeps only its text."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return ConnectionRefusedError(str(error))
