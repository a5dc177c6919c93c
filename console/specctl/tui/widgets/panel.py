"""The one widget of the main screen: paints lines, and repaints only the cells that changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from specctl.tui.text import Line, Role, width_of

Cell = tuple[str, Role]


def _cells(line: Line) -> list[Cell]:
    """One entry a terminal cell; the second cell of a wide character is empty text."""
    cells: list[Cell] = []
    for text, role in line:
        if text.isascii():
            cells.extend((char, role) for char in text)
            continue
        for char in text:
            size = cell_len(char)
            if size == 0:
                if cells:
                    cells[-1] = (cells[-1][0] + char, cells[-1][1])
                continue
            cells.append((char, role))
            cells.extend([("", role)] * (size - 1))
    return cells


def changed_span(old: Line, new: Line, width: int) -> tuple[int, int] | None:
    """First and one past the last cell that differ, or None."""
    if old == new:
        return None
    blank: Cell = (" ", Role.TEXT)
    a, b = _cells(old)[:width], _cells(new)[:width]
    a += [blank] * (width - len(a))
    b += [blank] * (width - len(b))
    first = next((i for i in range(width) if a[i] != b[i]), None)
    if first is None:
        return None
    last = next(i for i in range(width - 1, -1, -1) if a[i] != b[i])
    # A wide character is repainted whole.
    while first > 0 and (a[first][0] == "" or b[first][0] == ""):
        first -= 1
    while last + 1 < width and (a[last + 1][0] == "" or b[last + 1][0] == ""):
        last += 1
    return first, last + 1


class Panel(Widget):
    """Shows the lines given to `show`; roles are the component classes `panel--<role>`, coloured by the theme."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"panel--{role}" for role in Role}
    can_focus = False

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: tuple[Line, ...] = ()
        self._cuts: dict[int, tuple[int, int]] = {}

    @property
    def lines(self) -> tuple[Line, ...]:
        return self._lines

    def show(self, lines: Sequence[Line]) -> None:
        """Replace the lines; cells that stay the same are not sent to the terminal again."""
        old, self._lines = self._lines, tuple(lines)
        if old == self._lines:
            return
        width = self.size.width
        if not width or len(old) != len(self._lines):
            self._cuts.clear()
            self.refresh()
            return
        dirty: list[Region] = []
        for y, (before, after) in enumerate(zip(old, self._lines, strict=True)):
            if span := changed_span(before, after, width):
                self._cuts[y] = span
                dirty.append(Region(span[0], y, span[1] - span[0], 1))
        if dirty:
            self.refresh(*dirty)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        style = self.rich_style
        line = self._lines[y] if y < len(self._lines) else ()
        segments = [
            Segment(span.text, style + self.get_component_rich_style(f"panel--{span.role}", partial=True))
            for span in line
            if span.text
        ]
        strip = Strip(segments, width_of(line)).adjust_cell_length(width, style)
        # The compositor writes whole segments, so the segments end where the change does.
        if span := self._cuts.get(y):
            cuts = [c for c in (*span, width) if c > 0]
            strip = Strip([s for part in strip.divide(sorted(set(cuts))) for s in part], width)
        return strip
