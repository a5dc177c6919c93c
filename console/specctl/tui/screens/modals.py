"""Questions: stop or restart, with Cancel as the default; and the line of a note."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

MOST_NOTE = 500


class ConfirmScreen(ModalScreen[bool]):
    """Dismisses with True only when the named button was pressed; every other way out is Cancel."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "cancel"),
        Binding("left,up", "app.focus_previous", show=False),
        Binding("right,down", "app.focus_next", show=False),
    ]
    AUTO_FOCUS = "#cancel"

    def __init__(self, title: str, lines: list[str], verb: str) -> None:
        super().__init__()
        self._title, self._lines, self._verb = title, lines, verb

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = Content(self._title)
            yield Static(Content("\n".join(self._lines)), id="text")
            with Horizontal():
                yield Button(Content("Cancel"), id="cancel")
                yield Button(Content(self._verb), id="confirm")

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "confirm")

    def action_cancel(self) -> None:
        self.dismiss(False)


class NoteScreen(ModalScreen[str | None]):
    """Dismisses with the typed line, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "cancel")]
    AUTO_FOCUS = "Input"

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = "note"
            yield Static(Content("It goes into the event history with your name. Enter saves, Esc leaves."), id="text")
            yield Input(placeholder="what happened, what you try", max_length=MOST_NOTE)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)

    def action_cancel(self) -> None:
        self.dismiss(None)
