"""The one widget of the main screen: paints lines, and paints again only the lines that changed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from specctl.tui.text import Line, width_of
from specctl.tui.widgets.palette import HasPalette


class Panel(Widget):
    """Shows the lines given to `show`, each role in the palette's style."""

    can_focus = False

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: tuple[Line, ...] = ()

    @property
    def lines(self) -> tuple[Line, ...]:
        return self._lines

    def show(self, lines: Sequence[Line]) -> None:
        """Replace the lines. Which cells of a line go to the terminal is decided by `specctl.tui.lean`."""
        old, self._lines = self._lines, tuple(lines)
        if old == self._lines:
            return
        width = self.size.width
        if not width or len(old) != len(self._lines):
            self.refresh()
            return
        pairs = enumerate(zip(old, self._lines, strict=True))
        self.refresh(*(Region(0, y, width, 1) for y, (before, after) in pairs if before != after))

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        style = self.rich_style
        app = self.app
        assert isinstance(app, HasPalette)
        palette = app.palette
        line = self._lines[y] if y < len(self._lines) else ()
        segments = [Segment(span.text, style + palette.style(span.role)) for span in line if span.text]
        return Strip(segments, width_of(line)).adjust_cell_length(width, style)
