"""The event log: numbered, kept in a ring and in `events.jsonl`, read by whoever waits for an outcome."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

import msgspec

from specctl.core.events import Event, EventKind, HistoryPoint
from specctl.core.snapshot import Flip

RING = 5000
FILE_LIMIT = 16 << 20
HISTORY_SECONDS = 3600
log = logging.getLogger(__name__)


class EventLog:
    """Appends and serves events. Ids continue after a restart of the daemon. Used from the event loop only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ring: deque[Event] = deque(maxlen=RING)
        self._changed: set[asyncio.Event] = set()
        self._fd = -1
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._load()
        self._last = self._ring[-1].id if self._ring else 0

    def _load(self) -> None:
        decoder = msgspec.json.Decoder(Event)
        for path in (self._path.with_suffix(".jsonl.1"), self._path):
            with suppress(FileNotFoundError), path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - (4 << 20)))
                for line in file:
                    # The first line may be a part of one, the last may be torn by a crash.
                    with suppress(msgspec.DecodeError):
                        event = decoder.decode(line)
                        if not self._ring or event.id > self._ring[-1].id:
                            self._ring.append(event)

    @property
    def last_id(self) -> int:
        return self._last

    def add(
        self,
        kind: EventKind,
        message: str,
        *,
        run: int | None = None,
        flip: Flip | None = None,
        data: dict[str, str] | None = None,
    ) -> Event:
        """Numbers, keeps and announces an event."""
        self._last += 1
        event = Event(id=self._last, at=time.time(), kind=kind, message=message, run=run, flip=flip, data=data or {})
        self._ring.append(event)
        self._write(event)
        log.info("%s: %s", kind.value, message)
        for changed in self._changed:
            changed.set()
        return event

    def _write(self, event: Event) -> None:
        try:
            if self._fd < 0:
                self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
                if not _ends_with_newline(self._path):
                    os.write(self._fd, b"\n")
            os.write(self._fd, msgspec.json.encode(event) + b"\n")
            if os.fstat(self._fd).st_size > FILE_LIMIT:
                os.close(self._fd)
                self._fd = -1
                self._path.replace(self._path.with_suffix(".jsonl.1"))
        except OSError as error:  # a full disk must not stop the supervisor; the ring still has it
            log.warning("events.jsonl: %s", error)

    def page(self, after: int | None, limit: int) -> list[Event]:
        """The oldest `limit` events after id `after`; without `after` the newest `limit`."""
        if limit <= 0:
            return []
        if after is None:
            return list(self._ring)[-limit:]
        newer = [event for event in self._ring if event.id > after]
        return newer[:limit]

    def last_flip(self, run: int) -> Flip | None:
        """The newest flip of this run."""
        return next((e.flip for e in reversed(self._ring) if e.flip is not None and e.run == run), None)

    def subscribe(self) -> asyncio.Event:
        """An event that is set whenever something was added; give it to `unsubscribe` in the end."""
        changed = asyncio.Event()
        self._changed.add(changed)
        return changed

    def unsubscribe(self, changed: asyncio.Event) -> None:
        self._changed.discard(changed)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _ends_with_newline(path: Path) -> bool:
    """Whether the file is empty or its last line is whole (a crash may have torn it)."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            return True
        file.seek(size - 1)
        return file.read(1) == b"\n"


class History:
    """One point a second for an hour."""

    def __init__(self) -> None:
        self._points: deque[HistoryPoint] = deque(maxlen=HISTORY_SECONDS)

    def add(self, point: HistoryPoint) -> None:
        self._points.append(point)

    def since(self, at: float) -> list[HistoryPoint]:
        return [point for point in self._points if point.at >= at]
