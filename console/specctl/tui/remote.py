"""The daemon as a source: the client's calls with this operator's name, the stream with its recent past first."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from specctl.core.api import Accepted, LogPage, ModeRequest, NoteRequest, StopRequest
from specctl.core.errors import SpecctlError
from specctl.core.events import HistoryPoint
from specctl.tui.source import Item
from specctl.tui.store import LinkLost

if TYPE_CHECKING:
    from specctl.client.streaming import AsyncClient

RECENT_EVENTS = 200
START_ONE = "start one with `specctl up PROFILE`"


def operator_name() -> str:
    """Who acts: the person before sudo, else the login name."""
    if name := os.environ.get("SUDO_USER"):
        return name
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


class RemoteSource:
    """One daemon, by the path of its socket."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._actor = operator_name()
        self._made: AsyncClient | None = None

    @property
    def _client(self) -> AsyncClient:
        if self._made is None:
            # Imported here: httpx takes longer to import than the first screen may take to appear.
            from specctl.client.streaming import AsyncClient

            self._made = AsyncClient(self._socket)
        return self._made

    async def stream(self) -> AsyncIterator[Item]:
        from specctl.client.streaming import Disconnected

        while True:
            try:
                # The snapshot first: it tells whether the daemon is another one, with events numbered anew.
                yield await self._client.snapshot()
                page = await self._client.events(limit=RECENT_EVENTS)
                for event in page.events:
                    yield event
                async for item in self._client.stream(after=page.last_id):
                    if isinstance(item, Disconnected):
                        yield LinkLost(reason=item.reason, remedy=START_ONE)
                        break
                    yield item
                delay = 0.5
            except SpecctlError as error:
                yield LinkLost(reason=error.message, remedy=error.remedy or START_ONE)
                delay = 1.0
            await asyncio.sleep(delay)

    async def set_mode(self, mode: str, *, reason: str = "") -> Accepted:
        return await self._client.set_mode(ModeRequest(mode=mode, reason=reason, actor=self._actor))

    async def stop(self) -> Accepted:
        return await self._client.stop(StopRequest(actor=self._actor))

    async def restart(self) -> Accepted:
        return await self._client.restart(StopRequest(actor=self._actor))

    async def note(self, text: str) -> Accepted:
        return await self._client.note(NoteRequest(text=text, actor=self._actor))

    async def logs(self, *, start: int | None = None, tail: int | None = None, limit: int | None = None) -> LogPage:
        return await self._client.logs(start=start, tail=tail, limit=limit)

    async def history(self, seconds: float) -> list[HistoryPoint]:
        return (await self._client.history(seconds)).points

    async def close(self) -> None:
        if self._made is not None:
            await self._made.aclose()
