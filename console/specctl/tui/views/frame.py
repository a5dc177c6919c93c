"""What every view function gets, and the section header that they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specctl.core.snapshot import Snapshot
from specctl.tui.glyphs import Glyphs
from specctl.tui.store import View
from specctl.tui.text import Line, Role, Span, clean, crop, width_of

MODE_ROLES = (Role.MODE_1, Role.MODE_2, Role.MODE_3, Role.MODE_4)


@dataclass(frozen=True, slots=True)
class Frame:
    """A view, and the cells that a panel has for it."""

    view: View
    width: int
    height: int
    glyphs: Glyphs

    @property
    def snapshot(self) -> Snapshot | None:
        return self.view.snapshot

    def foreign(self, text: str | None) -> str:
        """Text from outside, safe for this terminal."""
        return self.glyphs.text(clean(text or ""))


def header(frame: Frame, title: str, right: Sequence[Span] = (), *, columns: Sequence[Span] = ()) -> Line:
    """A rule with a title at its left and a remark at its right."""
    rule = frame.glyphs.rule
    line: list[Span] = [Span(rule + " ", Role.RULE), Span(title, Role.TITLE), Span(" ", Role.RULE), *columns]
    tail = [Span(" "), *right, Span(" " + rule, Role.RULE)] if right else []
    rest = frame.width - width_of(line) - width_of(tail)
    if rest < 0:
        tail, rest = [], frame.width - width_of(line)
    return crop((*line, Span(rule * max(0, rest), Role.RULE), *tail), frame.width)


def mode_role(frame: Frame, name: str | None) -> Role:
    """The colour of a mode: by its place in the profile, plain for a mode that does not speculate."""
    if frame.snapshot is None or name is None:
        return Role.DIM
    place = 0
    for info in frame.snapshot.speculation.modes:
        if info.mode.name == name:
            return Role.MODE_OFF if info.mode.is_off else MODE_ROLES[place % len(MODE_ROLES)]
        place += not info.mode.is_off
    return Role.TEXT


def fill(lines: Sequence[Line], height: int) -> list[Line]:
    return [*lines[:height], *([()] * (height - len(lines)))]
