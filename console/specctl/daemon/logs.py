"""One run's output: indexed as it grows, rotated without touching the writer, read by line number.

The server holds an O_APPEND descriptor of `server.log`, so cutting the file to nothing after a copy is safe: its next
write starts at offset 0. Bytes written between the last copied byte and the cut are lost; that window is microseconds.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from specctl.core.api import LogPage
from specctl.core.errors import UsageError
from specctl.core.events import LogLine

LINE_CAP = 64 * 1024
CUT_MARK = " ... [cut by specctl: line longer than 64 KiB]"
MARK_EVERY = 512
CHUNK = 1 << 18
MAX_LINES = 5000
_STAMP = re.compile(r"\[(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)")


@dataclass(slots=True)
class Segment:
    """One file of a run. `marks` holds (line number, byte offset) every MARK_EVERY lines; `lines` are whole lines."""

    path: Path
    first: int
    lines: int = 0
    size: int = 0
    marks: list[tuple[int, int]] = field(default_factory=list)
    open_tail: bool = False  # bytes after the last newline

    @property
    def end(self) -> int:
        """The number after the last line, an unfinished one included."""
        return self.first + self.lines + self.open_tail


class RunLog:
    """The log of one run folder. Not thread-safe: one caller at a time."""

    def __init__(self, run: int, folder: Path, *, max_bytes: int = 64 << 20, keep_files: int = 5) -> None:
        self.run, self.folder = run, folder
        self.max_bytes, self.keep_files = max_bytes, keep_files
        self.path = folder / "server.log"
        self.finished = False
        self._fd = -1
        self._old: list[Segment] = []
        self._told, self._told_next = (0, 0), 0  # how far `follow` has come: (segment's first line, bytes), line
        self._open()

    def _open(self) -> None:
        first = self._dropped_before() + 1
        for number in range(self.keep_files + 64, 0, -1):
            path = self.folder / f"server.log.{number}"
            if path.exists():
                segment = Segment(path, first)
                with path.open("rb") as file:
                    _index(segment, file.fileno())
                self._old.append(segment)
                first = segment.end
        self._live = Segment(self.path, first)
        with suppress(FileNotFoundError):
            self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _dropped_before(self) -> int:
        try:
            return int(json.loads((self.folder / "log.json").read_text())["dropped"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0

    @property
    def first_number(self) -> int:
        return self._old[0].first if self._old else self._live.first

    @property
    def next_number(self) -> int:
        """The number that the next finished line gets; after the end of the run an unfinished one counts too."""
        return self._live.end if self.finished else self._live.first + self._live.lines

    @property
    def is_deleted(self) -> bool:
        """Whether somebody removed the file that the server still writes to."""
        if self._fd < 0:
            return False
        return os.fstat(self._fd).st_nlink == 0

    def refresh(self) -> None:
        """Indexes what was written meanwhile. For any reader, as often as it likes."""
        if self._fd < 0:
            with suppress(FileNotFoundError):
                self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            if self._fd < 0:
                return
        if os.fstat(self._fd).st_size < self._live.size:  # cut by somebody else: count on from here
            self._live = Segment(self.path, self._live.end)
        _index(self._live, self._fd)

    def follow(self) -> list[tuple[int, str]]:
        """What was written since the last call as (number, line), the newest MAX_LINES. For one follower alone.

        An unfinished last line (a progress bar) comes each time it grew, under the same number.
        """
        self.refresh()
        if self._told == (self._live.first, self._live.size) or not self._live.size:
            return []
        start = max(self._told_next, self._live.first, self._live.end - MAX_LINES)
        self._told = (self._live.first, self._live.size)
        self._told_next = self._live.first + self._live.lines
        return list(self._read(self._live, start))

    def rotate_if_large(self) -> bool:
        """Copies the file to `server.log.1` and empties it when it is over max_bytes. False when it was not."""
        if self._fd < 0 or os.fstat(self._fd).st_size < self.max_bytes:
            return False
        self._shift()
        rotated = self.folder / "server.log.1"
        try:
            with rotated.open("wb") as copy:
                offset = 0
                while chunk := os.pread(self._fd, CHUNK, offset):
                    copy.write(chunk)
                    copy.flush()
                    offset += len(chunk)
        except OSError:  # disk full: keep the server's disk use bounded, count the lines as dropped
            with suppress(OSError):
                rotated.unlink()
        _index(self._live, self._fd)
        os.ftruncate(self._fd, 0)
        segment = self._live
        segment.path = rotated
        self._live = Segment(self.path, segment.end)
        if rotated.exists():
            self._old.append(segment)
        self._note_dropped()
        return True

    def _shift(self) -> None:
        while len(self._old) >= self.keep_files:
            with suppress(OSError):
                self._old.pop(0).path.unlink()
        for segment in self._old:
            number = int(segment.path.suffix[1:]) + 1
            target = self.folder / f"server.log.{number}"
            with suppress(OSError):
                segment.path.rename(target)
            segment.path = target

    def _note_dropped(self) -> None:
        with suppress(OSError):
            (self.folder / "log.json").write_text(json.dumps({"dropped": self.first_number - 1}))

    def page(
        self,
        start: int | None = None,
        *,
        tail: int | None = None,
        grep: str | None = None,
        limit: int = 1000,
    ) -> LogPage:
        """Lines from number `start`, or the last `tail` ones; `grep` is a regular expression that lines must match.

        Raises UsageError when grep is not a regular expression. At most min(limit, 5000) lines.
        """
        matches = _compile(grep)
        limit = max(1, min(limit, MAX_LINES))
        end = self.next_number
        if start is None:
            wanted = limit if tail is None else max(0, min(tail, limit))
            return self._tail(wanted, matches, end)
        dropped = max(0, self.first_number - start)
        lines: list[LogLine] = []
        for number, text in self._lines_from(max(start, self.first_number), end):
            if matches is None or matches.search(text):
                lines.append(self._line(number, text))
                if len(lines) == limit:
                    return LogPage(run=self.run, lines=lines, next_number=number + 1, dropped=dropped)
        return LogPage(run=self.run, lines=lines, next_number=max(end, min(start, end)), dropped=dropped)

    def _tail(self, wanted: int, matches: re.Pattern[str] | None, end: int) -> LogPage:
        if matches is None:
            found = [self._line(n, t) for n, t in self._lines_from(max(self.first_number, end - wanted), end)]
        else:
            newest: list[LogLine] = []
            for number, text in self._lines_from(self.first_number, end):
                if matches.search(text):
                    newest.append(self._line(number, text))
                    if len(newest) > 2 * wanted + 64:
                        del newest[: len(newest) - wanted]
            found = newest[len(newest) - wanted :] if wanted < len(newest) else newest
        return LogPage(run=self.run, lines=found if wanted else [], next_number=end)

    def _lines_from(self, start: int, end: int) -> Iterator[tuple[int, str]]:
        for segment in (*self._old, self._live):
            if segment.end > start:
                for number, text in self._read(segment, max(start, segment.first)):
                    if number >= end:
                        return
                    yield number, text

    def _read(self, segment: Segment, start: int) -> Iterator[tuple[int, str]]:
        number, offset = segment.first, 0
        for mark, at in segment.marks:
            if mark > start:
                break
            number, offset = mark, at
        fd, ours = self._fd, segment is not self._live
        if ours:
            try:
                fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return
        try:
            for raw, _ in _split(fd, offset, segment.size):
                if number >= start:
                    yield number, _text(raw)
                number += 1
        finally:
            if ours:
                os.close(fd)

    def _line(self, number: int, text: str) -> LogLine:
        return LogLine(run=self.run, number=number, text=text, at=stamp_of(text))


def _index(segment: Segment, fd: int) -> None:
    """Counts the lines written since segment.size. A line's bytes are never held as a whole."""
    # An open tail is counted again from its start only as a flag, so the offset may go on where it stopped.
    offset = segment.size
    while chunk := os.pread(fd, CHUNK, offset):
        at = chunk.find(b"\n")
        if not segment.marks:
            segment.marks.append((segment.first, 0))
        while at >= 0:
            segment.lines += 1
            if segment.lines % MARK_EVERY == 0:
                segment.marks.append((segment.first + segment.lines, offset + at + 1))
            at = chunk.find(b"\n", at + 1)
        offset += len(chunk)
        segment.open_tail = not chunk.endswith(b"\n")
    segment.size = offset


def _split(fd: int, offset: int, size: int) -> Iterator[tuple[bytes, bool]]:
    """(line without its newline, capped; whether it was finished), from `offset` to `size`."""
    pending, over = b"", False
    while offset < size and (chunk := os.pread(fd, min(CHUNK, size - offset), offset)):
        offset += len(chunk)
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            yield _capped(pending + part, over=over), True
            pending, over = b"", False
        pending, over = (pending + rest)[: LINE_CAP + 1], over or len(pending) + len(rest) > LINE_CAP
    if pending:
        yield _capped(pending, over=over), False


def _capped(raw: bytes, *, over: bool) -> bytes:
    if over or len(raw) > LINE_CAP:
        return raw[:LINE_CAP] + CUT_MARK.encode()
    return raw


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace").replace("\0", "")


def _compile(grep: str | None) -> re.Pattern[str] | None:
    if not grep:
        return None
    try:
        return re.compile(grep)
    except re.error as error:
        raise UsageError(f"grep {grep!r} is not a regular expression: {error}") from error


def stamp_of(text: str) -> float | None:
    """The time that SGLang wrote at the start of the line, as Unix seconds, or None."""
    found = _STAMP.match(text)
    if not found:
        return None
    try:
        year, month, day, hour, minute, second = (int(part) for part in found.groups())
        return time.mktime((year, month, day, hour, minute, second, 0, 0, -1))
    except (OverflowError, ValueError):
        return None
