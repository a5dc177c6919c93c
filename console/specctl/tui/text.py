"""Lines as data: runs of text with a role. What the views return, what the panel widget paints.

Foreign text (log lines, model names, reasons) enters a line through `clean` only, and nothing here parses markup.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size


class Role(StrEnum):
    """What a run of text means; the theme decides how it looks. Values are the CSS component class suffixes."""

    TEXT = "text"
    STRONG = "strong"
    DIM = "dim"
    RULE = "rule"
    TITLE = "title"
    KEY = "key"
    OK = "ok"
    WARN = "warn"
    BAD = "bad"
    BUSY = "busy"
    STALE = "stale"
    CHIP_OK = "chip-ok"
    CHIP_WARN = "chip-warn"
    CHIP_BAD = "chip-bad"
    CHIP_BUSY = "chip-busy"
    CHIP_IDLE = "chip-idle"
    CHIP_MODE = "chip-mode"
    MODE_1 = "mode-1"
    MODE_2 = "mode-2"
    MODE_3 = "mode-3"
    MODE_4 = "mode-4"
    MODE_OFF = "mode-off"


class Span(NamedTuple):
    text: str
    role: Role = Role.TEXT


Line = tuple[Span, ...]
EMPTY: Line = ()

# Colour sequences are dropped whole; any other escape keeps its body, with the escape made visible.
_SGR = re.compile(r"\x1b\[[0-9;:]*m")
_HIDDEN = frozenset({"Cf", "Zl", "Zp", "Co", "Cs", "Cn"})
LONGEST = 2000
MOST_MARKS = 2


def clean(text: str, *, limit: int = LONGEST) -> str:
    """One printable line: no colour codes, control characters in caret notation, no invisible or bidi characters."""
    text = _SGR.sub("", text[: limit * 4])[:limit]
    if text.isascii() and text.isprintable():
        return text
    out: list[str] = []
    marks = 0
    for char in text.expandtabs(4):
        category = unicodedata.category(char)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        if category == "Cc":
            code = ord(char)
            out.append("^" + chr(code ^ 0x40) if code < 0x80 else f"<{code:02x}>")
        elif category in _HIDDEN:
            out.append("?")
        elif marks <= MOST_MARKS:
            out.append(char)
    return "".join(out)


def width_of(line: Iterable[Span]) -> int:
    """Terminal cells that the line takes."""
    return sum(cell_len(span.text) for span in line)


def plain(line: Iterable[Span]) -> str:
    return "".join(span.text for span in line)


def ellipsize(text: str, width: int, *, mark: str = "…") -> str:
    """At most `width` cells, the cut shown by `mark`."""
    if cell_len(text) <= width:
        return text
    if width <= 0:
        return ""
    return set_cell_size(text, max(0, width - cell_len(mark))).rstrip() + mark


def crop(line: Sequence[Span], width: int, *, mark: str = "…") -> Line:
    """The line cut to `width` cells, the cut shown by `mark`."""
    if width_of(line) <= width:
        return tuple(line)
    out: list[Span] = []
    left = width
    for span in line:
        size = cell_len(span.text)
        if size < left:
            out.append(span)
            left -= size
            continue
        out.append(Span(ellipsize(span.text + " ", left, mark=mark), span.role))
        break
    return tuple(out)


def pad(line: Sequence[Span], width: int) -> Line:
    """The line made exactly `width` cells wide."""
    line = crop(line, width)
    rest = width - width_of(line)
    return (*line, Span(" " * rest)) if rest > 0 else line


def spread(left: Sequence[Span], right: Sequence[Span], width: int) -> Line:
    """`left` at the left edge, `right` at the right one; `left` is cut first when both do not fit."""
    right_width = width_of(right)
    if not right_width:
        return crop(left, width)
    room = width - right_width - 1
    if room < 1:
        return crop(left, width)
    left = crop(left, room)
    return (*left, Span(" " * (width - right_width - width_of(left))), *right)


def beside(left: Sequence[Span], right: Sequence[Span], left_width: int) -> Line:
    return (*pad(left, left_width), *right)


def cell(text: str, width: int, role: Role = Role.TEXT, *, right: bool = False) -> Span:
    """A table cell of exactly `width` cells."""
    text = ellipsize(text, width)
    fill = " " * (width - cell_len(text))
    return Span(fill + text if right else text + fill, role)


def take_fitting(parts: Sequence[Line], width: int, *, gap: int = 2) -> Line:
    """As many of `parts`, most important first, as fit `width`; their order stays."""
    out: list[Span] = []
    used = 0
    for part in parts:
        size = width_of(part) + (gap if out else 0)
        if not part or used + size > width:
            continue
        if out:
            out.append(Span(" " * gap))
        out.extend(part)
        used += size
    return tuple(out)


def wrap(text: str, width: int) -> list[str]:
    """`text` broken into lines of at most `width` cells, at spaces where there are any."""
    if width <= 0:
        return []
    lines: list[str] = []
    current = ""
    for word in text.split(" "):
        candidate = f"{current} {word}" if current else word
        if cell_len(candidate) <= width:
            current = candidate
            continue
        if current:
            lines.append(current)
        while cell_len(word) > width:
            head = set_cell_size(word, width).rstrip()
            if not head:
                return lines
            lines.append(head)
            word = word[len(head) :]
        current = word
    if current:
        lines.append(current)
    return lines
