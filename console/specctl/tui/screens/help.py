"""The help screen: every action and every number, one line each."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen

from specctl.tui.glyphs import Glyphs
from specctl.tui.store import View
from specctl.tui.text import Role, Span
from specctl.tui.views.frame import Frame
from specctl.tui.views.help import help_lines
from specctl.tui.widgets.panel import Panel


class HelpScreen(Screen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark", "back", "back")]
    AUTO_FOCUS = "VerticalScroll"

    def __init__(self, view: View, glyphs: Glyphs) -> None:
        super().__init__()
        self._view, self._glyphs = view, glyphs
        self._text, self._hint = Panel(id="text"), Panel(id="hint")

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield self._text
        yield self._hint

    def on_resize(self) -> None:
        width = self.size.width - 2
        lines = help_lines(Frame(self._view, width, self.size.height, self._glyphs))
        self._text.styles.width, self._text.styles.height = width, len(lines)
        self._text.show(self._glyphs.lines(lines))
        self._hint.show(
            [(Span(" esc", Role.KEY), Span(" back   ", Role.DIM), Span("up down", Role.KEY), Span(" scroll", Role.DIM))]
        )

    def action_back(self) -> None:
        self.dismiss()
