"""The last line: the keys, made from the action registry; what does not fit is left to the help screen."""

from __future__ import annotations

from specctl.tui.actions import ACTIONS, footer_order, key_of_mode, refusal
from specctl.tui.text import Line, Role, Span, width_of
from specctl.tui.views.frame import Frame


def footer(frame: Frame) -> list[Line]:
    view = frame.view
    modes = key_of_mode(view)
    flips: list[Line] = [
        (Span(key, Role.DIM if view.mode_refusal(name) else Role.KEY), Span(f" {name}", Role.DIM))
        for name, key in modes.items()
    ]
    parts = {
        action.id: (
            Span(action.shown_key, Role.DIM if refusal(action, view) else Role.KEY),
            Span(f" {action.label}", Role.DIM),
        )
        for action in ACTIONS
    }
    important = [*(a.id for a in footer_order() if a.always), *(a.id for a in footer_order() if not a.always)]
    room = frame.width - 2
    chosen: set[str] = set()
    used = 0
    flips_width = sum(width_of(flip) + 2 for flip in flips)
    keep_flips = True
    for index, name in enumerate(important):
        size = width_of(parts[name]) + 2
        if index == 2:
            keep_flips = used + flips_width <= room
            used += flips_width if keep_flips else 0
        if used + size <= room + 2:
            chosen.add(name)
            used += size
    ordered = [*(flips if keep_flips else []), *(parts[a.id] for a in ACTIONS if a.id in chosen and not a.always)]
    ordered += [parts[a.id] for a in ACTIONS if a.id in chosen and a.always]
    line: list[Span] = [Span(" ")]
    for part in ordered:
        line.extend((*part, Span("  ")))
    return [tuple(line)]
