"""The log screen: the server's output, bounded, followed or held."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Log

from specctl.core.errors import SpecctlError
from specctl.tui.glyphs import Glyphs
from specctl.tui.source import Source
from specctl.tui.text import Line, Role, Span, clean, spread
from specctl.tui.widgets.panel import Panel

MOST_LINES = 5000
FIRST_LINES = 1000
BATCH = 1000
POLL_S = 0.25


class LogScreen(Screen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,l", "back", "back"),
        Binding("f", "follow", "follow"),
        Binding("g", "top", "top"),
        Binding("G", "bottom", "bottom"),
    ]
    AUTO_FOCUS = "Log"

    def __init__(self, source: Source, glyphs: Glyphs) -> None:
        super().__init__()
        self._source, self._glyphs = source, glyphs
        self._log = Log(max_lines=MOST_LINES, highlight=False, auto_scroll=True)
        self._title, self._hint = Panel(id="title"), Panel(id="hint")
        self._following = True
        self._next: int | None = None
        self._run: int | None = None
        self._lost = 0
        self._problem = ""

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._log
        yield self._hint

    def on_mount(self) -> None:
        self.run_worker(self._follow(), exit_on_error=False)
        self.call_after_refresh(self._paint)

    def on_resize(self) -> None:
        self._paint()

    async def _follow(self) -> None:
        while True:
            try:
                await self._read()
                self._problem = ""
            except SpecctlError as error:
                self._problem = error.message
            self._paint()
            await asyncio.sleep(POLL_S)

    async def _read(self) -> None:
        if self._next is None:
            page = await self._source.logs(tail=FIRST_LINES)
        else:
            page = await self._source.logs(start=self._next, limit=BATCH)
        if self._run is not None and page.run != self._run:
            self._log.write_line(f"--- run {page.run} ---")
            page = await self._source.logs(tail=FIRST_LINES)
        self._run, self._next = page.run, page.next_number
        self._lost += page.dropped
        if page.lines:
            self._log.write_lines([self._glyphs.text(clean(line.text)) for line in page.lines])

    def _paint(self) -> None:
        state = "following" if self._following else "held"
        title: Line = (Span(" log ", Role.TITLE), Span(f"run {'-' if self._run is None else self._run}  "))
        title = (*title, Span(state, Role.OK if self._following else Role.WARN))
        if self._lost:
            title = (*title, Span(f"  {self._lost} older lines are gone", Role.DIM))
        if self._problem:
            title = (*title, Span("  ! " + self._glyphs.text(clean(self._problem)), Role.BAD))
        count = (Span(f"{self._log.line_count:,} lines ", Role.DIM),)
        self._title.show(self._glyphs.lines([spread(title, count, self.size.width)]))
        keys = (
            ("esc", "back"),
            ("f", "follow or hold"),
            ("g G", "top, bottom"),
            ("left right", "long lines"),
            ("q", "detach"),
        )
        hint = [span for key, what in keys for span in (Span(f" {key}", Role.KEY), Span(f" {what}  ", Role.DIM))]
        self._hint.show([tuple(hint)])

    def action_back(self) -> None:
        self.dismiss()

    def action_follow(self) -> None:
        self._set_following(not self._following)

    def action_top(self) -> None:
        self._set_following(False)
        self._log.scroll_home(animate=False)

    def action_bottom(self) -> None:
        self._set_following(True)

    def _set_following(self, on: bool) -> None:
        self._following = self._log.auto_scroll = on
        if on:
            self._log.scroll_end(animate=False)
        self._paint()
