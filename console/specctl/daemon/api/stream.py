"""The event stream: server-sent events that a client can resume where it lost the connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from specctl.core.events import Event
from specctl.daemon.service import Service

KEEP_ALIVE_S = 15.0
PAGE = 500


def _message(kind: str, value: object, ident: int | None = None) -> bytes:
    # JSON has no raw line breaks, so one data line is always enough.
    head = f"id: {ident}\n" if ident is not None else ""
    return f"{head}event: {kind}\ndata: ".encode() + msgspec.json.encode(value) + b"\n\n"


async def sse(service: Service, after: int | None, hz: float) -> AsyncIterator[bytes]:
    """Events after id `after` (None: only new ones) as they happen, a snapshot with each batch and `hz` times a second.

    Ends when the daemon does.
    """
    loop = asyncio.get_running_loop()
    changed = service.events.subscribe()
    cursor = service.events.last_id if after is None else min(after, service.events.last_id)
    period, due, spoke = 1.0 / hz, loop.time(), loop.time()
    try:
        while not service.closing.is_set():
            changed.clear()
            events: list[Event] = service.events.page(cursor, PAGE)
            for event in events:
                cursor = event.id
                yield _message("event", event, event.id)
            now = loop.time()
            if events or now >= due:
                due = max(due + period, now) if now >= due else due
                spoke = now
                yield _message("snapshot", service.snapshots.make())
            elif now - spoke >= KEEP_ALIVE_S:
                spoke = now
                yield b": still here\n\n"
            wait = min(due, spoke + KEEP_ALIVE_S) - loop.time()
            try:
                await asyncio.wait_for(changed.wait(), max(0.0, wait))
            except TimeoutError:
                continue
    finally:
        service.events.unsubscribe(changed)
