"""What the TUI needs of a daemon, as a protocol; the real client is one source, a test's script another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from specctl.core.api import Accepted, LogPage
from specctl.core.events import Event, HistoryPoint
from specctl.core.snapshot import Snapshot
from specctl.tui.store import LinkLost

Item = Snapshot | Event | LinkLost


class Source(Protocol):
    """Every call may raise `SpecctlError`; `stream` does not end by itself, it reconnects and says so."""

    def stream(self) -> AsyncIterator[Item]: ...

    async def set_mode(self, mode: str, *, reason: str = "") -> Accepted: ...

    async def stop(self) -> Accepted: ...

    async def restart(self) -> Accepted: ...

    async def note(self, text: str) -> Accepted: ...

    async def logs(self, *, start: int | None = None, tail: int | None = None, limit: int | None = None) -> LogPage:
        """Lines from number `start`, or the newest `tail`, of the current run."""
        ...

    async def history(self, seconds: float) -> list[HistoryPoint]: ...

    async def close(self) -> None: ...
