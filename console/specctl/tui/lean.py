"""Sends the terminal only the cells that changed, with the shortest style changes.

Textual's own partial update rewrites every line from its start to the change and sets and resets the full style of
each run: several KiB a second at 1 Hz. `LeanUpdate` wraps an update of textual's compositor; the `Shown` behind it
remembers each cell that the terminal shows. Rests on internals of the pinned textual version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.strip import Strip

Cell = tuple[str, str]
# Rewriting so many unchanged cells is shorter than moving over them.
GAP = 3
# Underline, reverse and strike are seen without a letter.
_SEEN_ON_BLANKS = frozenset({"4", "7", "9", "21", "53"})
_OFF = {"1": "22", "2": "22", "3": "23", "4": "24", "7": "27", "9": "29"}


class Pen(NamedTuple):
    """What the terminal draws with: attribute codes, and the codes of both colours ("" is the default)."""

    attributes: frozenset[str] = frozenset()
    fore: str = ""
    back: str = ""


RESET = Pen()


@lru_cache(4096)
def pen_of(sgr: str) -> Pen:
    """A pen from the numbers of one SGR sequence."""
    attributes: set[str] = set()
    fore = back = ""
    codes = iter(sgr.split(";")) if sgr else iter(())
    for code in codes:
        number = int(code or 0)
        if number in (38, 48):
            kind = next(codes)
            text = ";".join((code, kind, *(next(codes) for _ in range(3 if kind == "2" else 1))))
            fore, back = (text, back) if number == 38 else (fore, text)
        elif 30 <= number <= 37 or 90 <= number <= 97:
            fore = code
        elif 40 <= number <= 47 or 100 <= number <= 107:
            back = code
        elif number not in (0, 39, 49):
            attributes.add(code)
    return Pen(frozenset(attributes), fore, back)


@lru_cache(4096)
def change_pen(old: Pen, new: Pen) -> str:
    """The shortest sequence that turns one pen into the other."""
    if old == new:
        return ""
    gone = old.attributes - new.attributes
    if new == RESET or any(code not in _OFF for code in gone):
        codes = ["", *sorted(new.attributes), *filter(None, (new.fore, new.back))]
        return f"\x1b[{';'.join(codes) if len(codes) > 1 else ''}m"
    switched_off = {_OFF[code] for code in gone}
    codes = sorted(switched_off)
    # 22 ends bold and dim alike.
    codes += sorted(c for c in new.attributes if c not in old.attributes or _OFF.get(c) in switched_off)
    if new.fore != old.fore:
        codes.append(new.fore or "39")
    if new.back != old.back:
        codes.append(new.back or "49")
    return f"\x1b[{';'.join(codes)}m"


@lru_cache(4096)
def blank_sgr(sgr: str) -> str:
    """The style of a blank: its background, and its foreground only where an attribute shows it."""
    pen = pen_of(sgr)
    return sgr if pen.attributes & _SEEN_ON_BLANKS else pen.back


def cells_of(segments: Iterable[Segment], colors: ColorSystem) -> Iterator[Cell]:
    """One entry a terminal cell; the second cell of a wide character is empty text."""
    last: Cell | None = None
    for text, style, _ in segments:
        sgr = Strip.render_ansi(style or Style.null(), colors)
        if text.isascii():
            if last is not None:
                yield last
                last = None
            blank = blank_sgr(sgr)
            for char in text:
                yield char, blank if char == " " else sgr
            continue
        for char in text:
            size = cell_len(char)
            if size == 0 and last is not None:
                last = (last[0] + char, last[1])
                continue
            if last is not None:
                yield last
            last = (char, sgr)
            if size == 2:
                yield last
                last = ("", sgr)
    if last is not None:
        yield last


class Shown:
    """What the terminal shows, cell by cell; None where that is not known."""

    def __init__(self) -> None:
        self._size = (0, 0)
        self._rows: list[list[Cell | None]] = []

    def forget(self) -> None:
        """Something else wrote to the terminal: everything is drawn again when it is next told."""
        self._size = (0, 0)

    def fit(self, size: tuple[int, int]) -> None:
        if size != self._size:
            self._size = size
            self._rows = [[None] * size[0] for _ in range(size[1])]

    def write(self, spans: Iterable[tuple[int, int, Iterable[Cell]]]) -> str:
        """The sequences that make the terminal show `spans`, each (row, column, cells)."""
        out: list[str] = []
        pen, at = RESET, (-1, -1)
        for y, x, cells in spans:
            if not 0 <= y < len(self._rows):
                continue
            row = self._rows[y]
            fresh = list(cells)[: len(row) - x]
            for start, end in self._changes(row, x, fresh):
                out.append(_move(at, (x + start, y)))
                for char, sgr in fresh[start:end]:
                    if char:
                        new = pen_of(sgr)
                        out.append(change_pen(pen, new) + char)
                        pen = new
                # At the right edge the cursor's place is the terminal's own affair.
                at = (x + end, y) if x + end < len(row) else (-1, -1)
            row[x : x + len(fresh)] = fresh
        out.append(change_pen(pen, RESET))
        return "".join(out)

    def _changes(self, row: list[Cell | None], x: int, cells: list[Cell]) -> Iterator[tuple[int, int]]:
        """Start and end of each run of changed cells, runs that are close together joined."""
        start = end = -1
        for i, cell in enumerate(cells):
            if row[x + i] == cell:
                continue
            if start >= 0 and i - end > GAP:
                yield self._whole(cells, start, end)
                start = -1
            if start < 0:
                start = i
            end = i + 1
        if start >= 0:
            yield self._whole(cells, start, end)

    @staticmethod
    def _whole(cells: list[Cell], start: int, end: int) -> tuple[int, int]:
        """A run never begins or ends inside a wide character."""
        while start > 0 and not cells[start][0]:
            start -= 1
        while end < len(cells) and not cells[end][0]:
            end += 1
        return start, end


def _move(at: tuple[int, int], to: tuple[int, int]) -> str:
    if at == to:
        return ""
    step = to[0] - at[0]
    if at[1] == to[1] and step > 0:
        return f"\x1b[{step if step > 1 else ''}C"
    return f"\x1b[{to[1] + 1};{to[0] + 1}H"


class LeanUpdate(CompositorUpdate):
    """One update of the compositor, drawn by what differs from `shown`."""

    def __init__(self, update: ChopsUpdate | LayoutUpdate, shown: Shown) -> None:
        self._update, self._shown = update, shown

    def render_segments(self, console: Console) -> str:
        colors = ColorSystem[(console.color_system or "truecolor").upper().replace("256", "EIGHT_BIT")]
        update = self._update
        if isinstance(update, LayoutUpdate):
            region = update.region
            return self._shown.write(
                (y, region.x, cells_of((s for strip in line for s in strip), colors))
                for y, line in enumerate(update.strips, region.y)
            )
        return self._shown.write(self._spans(update, colors))

    @staticmethod
    def _spans(update: ChopsUpdate, colors: ColorSystem) -> Iterator[tuple[int, int, Iterable[Cell]]]:
        for y, x1, x2 in update.spans:
            for end, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
                if strip is None or x >= x2 or end <= x1:
                    continue
                left, right = max(x, x1), min(end, x2)
                yield y, left, cells_of(strip.crop(left - x, right - x), colors)
