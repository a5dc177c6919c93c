"""The main screen: panels at planned places, painted from one view."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.screen import Screen

from specctl.tui.glyphs import Glyphs
from specctl.tui.layout import PAINTERS, Place, paint, plan
from specctl.tui.store import View
from specctl.tui.views.frame import Frame
from specctl.tui.widgets.palette import Palette
from specctl.tui.widgets.panel import Panel


class MainScreen(Screen[None]):
    def __init__(self, glyphs: Glyphs, palette: Palette, view: View) -> None:
        super().__init__()
        self._palette = palette
        self._glyphs = glyphs
        self._panels = {name: Panel(id=name) for name in PAINTERS}
        self._places: dict[str, Place] = {}
        self._view = view

    def compose(self) -> ComposeResult:
        yield self._palette
        for panel in self._panels.values():
            panel.display = False
            yield panel

    def on_resize(self) -> None:
        self.show(self._view)

    def show(self, view: View) -> None:
        """Paint `view`; panels that keep their place and their lines cost nothing."""
        self._view = view
        width, height = self.size
        if not width or not height:
            return
        frame = Frame(view, width, height, self._glyphs)
        places = {place.panel: place for place in plan(frame)}
        for name, panel in self._panels.items():
            place = places.get(name)
            if place is None:
                if panel.display:
                    panel.display = False
                continue
            if place != self._places.get(name):
                panel.styles.offset = (place.x, place.y)
                panel.styles.width, panel.styles.height = place.width, place.height
            if not panel.display:
                panel.display = True
            panel.show(paint(frame, place))
        self._places = places
