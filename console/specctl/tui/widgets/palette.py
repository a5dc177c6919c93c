"""The theme's styles by role, resolved once for the whole application."""

from __future__ import annotations

from typing import ClassVar

from rich.style import Style
from textual.app import App
from textual.widget import Widget

from specctl.tui.text import Role


class Palette(Widget):
    """Never shown: it only carries the component classes `role--<role>`, so that not every panel resolves them."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"role--{role}" for role in Role}
    can_focus = False

    def style(self, role: Role) -> Style:
        return self.get_component_rich_style(f"role--{role}", partial=True)


class HasPalette(App[int]):
    """An application whose panels are painted from one palette."""

    def __init__(self, *, ansi_color: bool | None = None) -> None:
        super().__init__(ansi_color=ansi_color)
        self.palette = Palette(id="palette")
