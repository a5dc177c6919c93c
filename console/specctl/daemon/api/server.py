"""uvicorn on a socket that is already bound, with our signals and the peer's uid checked on every connection."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from specctl.core.errors import Refused
from specctl.daemon.api.errors import error_response
from specctl.daemon.socket import peer_of


class PeerProtocol(H11Protocol):
    """Puts the peer's pid and uid into every request's scope. Source: SO_PEERCRED of the connection."""

    peer: tuple[int, int] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family == socket.AF_UNIX:
            self.peer = peer_of(connection)
        super().connection_made(transport)
        self.app = _with_peer(self.app, self.peer)


def _with_peer(app: Any, peer: tuple[int, int] | None) -> Any:
    async def called(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope["specctl.peer_uid"] = peer[1] if peer else None
            if peer is None or peer[1] not in (0, os.getuid()):
                refusal = Refused("this daemon belongs to another user", remedy="Run your own, or ask its owner")
                await error_response(refusal, 403)(scope, receive, send)
                return
        await app(scope, receive, send)

    return called


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.told_to_end = asyncio.Event()

    async def main_loop(self) -> None:
        """uvicorn wakes ten times a second to look at its flags and the date; an idle daemon should sleep."""
        await self.told_to_end.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn would take SIGINT and SIGTERM for itself; they are the daemon's."""
        yield


class ApiServer:
    """Serves `app` on `listener` until `stop`."""

    def __init__(self, app: FastAPI, listener: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http=PeerProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=2,
        )
        self._server, self._listener = _Server(config), listener

    async def run(self) -> None:
        await self._server.serve(sockets=[self._listener])

    def stop(self) -> None:
        self._server.should_exit = True
        self._server.told_to_end.set()
