"""Every action of the console, once: keys, footer, help and palette are made from this list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from specctl.core.modes import Mode
from specctl.tui.store import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """`id` is the app's `action_<id>`; `key` is textual's name of the key, `cap` what the footer shows for it.

    `commands`: the action changes something at the server, so that read-only and a lost link forbid it.
    """

    id: str
    key: str
    label: str
    help: str
    cap: str = ""
    commands: bool = False
    always: bool = False
    in_palette: bool = True

    @property
    def shown_key(self) -> str:
        return self.cap or self.key


ACTIONS: tuple[Action, ...] = (
    Action(
        id="help", key="question_mark", cap="?", label="help", help="every key, and what each number means", always=True
    ),
    Action(
        id="detach",
        key="q",
        label="detach",
        help="close this console; daemon and server keep running",
        always=True,
    ),
    Action(id="logs", key="l", label="logs", help="the server's output, followed or held"),
    Action(id="note", key="n", label="note", help="write a line into the event history", commands=True),
    Action(id="stop", key="s", label="stop", help="drain and stop the server (asks first)", commands=True),
    Action(
        id="restart",
        key="r",
        label="restart",
        help="drain, stop and start the server again (asks first)",
        commands=True,
    ),
    Action(id="window", key="w", label="window", help="charts over 5 minutes, 15 minutes or an hour"),
    Action(id="redraw", key="ctrl+l", cap="^l", label="redraw", help="draw the whole screen again"),
    Action(
        id="command_palette",
        key="ctrl+p",
        cap="^p",
        label="palette",
        help="every action and the colour themes, by name",
        in_palette=False,
    ),
)
# Kept for screens that later versions have, so that an operator's fingers need not learn a mode's key anew.
RESERVED_KEYS = frozenset({"a", "e", "p"})


def mode_keys(modes: Sequence[Mode]) -> dict[str, str]:
    """Key -> mode name: the first letter of the name that no action and no earlier mode has; else a free digit."""
    taken = {action.key for action in ACTIONS} | RESERVED_KEYS
    keys: dict[str, str] = {}
    for mode in modes:
        candidates = [c for c in mode.name if c.isalpha()] + list("123456789")
        key = next((c for c in candidates if c not in taken), None)
        if key is not None:
            keys[key] = mode.name
            taken.add(key)
    return keys


def key_of_mode(view: View) -> dict[str, str]:
    """Mode name -> its key, for the modes of the shown snapshot."""
    if view.snapshot is None:
        return {}
    return {name: key for key, name in mode_keys([m.mode for m in view.snapshot.speculation.modes]).items()}


def marker_letters(view: View) -> dict[str, str]:
    """Mode name -> the capital letter that marks a flip to it in the charts."""
    return {name: key.upper() for name, key in key_of_mode(view).items()}


def refusal(action: Action, view: View) -> str | None:
    """Why the action cannot run now, or None."""
    if not action.commands:
        return None
    if why := view.locked:
        return why
    assert view.snapshot is not None
    server = view.snapshot.server
    if action.id == "stop" and server.state.is_resting:
        return f"no server runs (state {server.state})"
    if action.id == "restart" and server.profile is None and server.run is None:
        return "no server was started yet: specctl up PROFILE"
    return None


def footer_order() -> Iterable[Action]:
    """Most important first: what a narrow terminal still shows."""
    return sorted(ACTIONS, key=lambda action: not action.always)
