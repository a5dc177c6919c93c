"""`specctl logs`."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable
from datetime import datetime, timedelta

from specctl.cli.connect import connect
from specctl.cli.output import clean, data, data_json, say
from specctl.client.blocking import Client
from specctl.core.api import LogPage
from specctl.core.errors import UsageError
from specctl.core.events import LogLine
from specctl.core.exitcodes import ExitCode

DEFAULT_TAIL = 200
PAGE = 2000
FIRST = 1
_FOLLOW_S = 0.3
_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def logs(
    *,
    follow: bool,
    run: int | None,
    tail: int | None,
    since: str | None,
    grep: str | None,
    json: bool,
    socket: str | None,
) -> int:
    """Print the server's output: the last `tail` lines, or all since a time; with `follow` go on as it grows."""
    earliest = None if since is None else parse_since(since, datetime.now().astimezone())
    client = connect(socket)
    printer = _Printer(json=json, earliest=earliest)
    if tail is None and since is None and grep is None:
        tail = DEFAULT_TAIL
    page = client.logs(run=run, tail=tail, grep=grep, start=None if tail is not None else FIRST, limit=tail or PAGE)
    printer.page(page)
    if tail is None:
        page = _rest(client, page, grep, printer)
    if follow:
        _follow(client, page, run, grep, printer)
    return int(ExitCode.OK)


def _rest(client: Client, page: LogPage, grep: str | None, printer: _Printer) -> LogPage:
    """The pages after `page` up to the end that the log has now."""
    while True:
        # A page that is not full reached the end; what is written meanwhile is a follower's business.
        if len(page.lines) < PAGE:
            return page
        page = client.logs(run=page.run, start=page.next_number, grep=grep, limit=PAGE)
        printer.page(page)


def _follow(client: Client, page: LogPage, run: int | None, grep: str | None, printer: _Printer) -> None:
    number, current = page.next_number, page.run
    while True:
        time.sleep(_FOLLOW_S)
        page = client.logs(run=run, start=number, grep=grep, limit=PAGE)
        if page.run != current:
            say(f"run {page.run} has started")
            page = client.logs(run=page.run, start=FIRST, grep=grep, limit=PAGE)
            current = page.run
        printer.page(page)
        number = page.next_number


class _Printer:
    def __init__(self, *, json: bool, earliest: float | None) -> None:
        self._json = json
        self._earliest = earliest
        self._is_terminal = sys.stdout.isatty()
        self._last_at: float | None = None

    def page(self, page: LogPage) -> None:
        if page.dropped:
            say(f"lines that are gone, because the log was rotated: {page.dropped}")
        self._lines(page.lines)

    def _lines(self, lines: Iterable[LogLine]) -> None:
        for line in lines:
            # A line without a time of its own, as in a traceback, is as old as the one above it.
            self._last_at = line.at if line.at is not None else self._last_at
            if self._earliest is not None and (self._last_at is None or self._last_at < self._earliest):
                continue
            if self._json:
                data_json(line, lines=True)
            else:
                data(clean(line.text) if self._is_terminal else line.text)


def parse_since(text: str, now: datetime) -> float:
    """Unix seconds of "10m", "1.5h", "14:02", "14:02:10" (the last such time) or an ISO time. Raises UsageError."""
    if ago := _AGO.fullmatch(text):
        return now.timestamp() - float(ago[1]) * _SECONDS[ago[2]]
    for form in ("%H:%M", "%H:%M:%S"):
        try:
            clock = datetime.strptime(text, form)
        except ValueError:
            continue
        at = now.replace(hour=clock.hour, minute=clock.minute, second=clock.second, microsecond=0)
        return (at if at <= now else at - timedelta(days=1)).timestamp()
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise UsageError(f"--since {text!r} is not a time", remedy="Write 10m, 2h, 14:02 or 2026-01-31T14:02") from None
