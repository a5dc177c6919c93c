"""The characters that the screen is drawn with, and which of them this terminal can show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specctl.tui.text import Line, Span


@dataclass(frozen=True, slots=True)
class Glyphs:
    """`chart`: "braille", "block" or "ascii". Everything else is one cell wide."""

    ascii: bool
    chart: str
    rule: str
    corner: str
    cut: str
    arrow: str
    dot: str
    degree: str
    check: str
    cross: str
    bar_full: str
    bar_parts: str
    bar_empty: str
    marker: str
    up: str
    down: str

    def text(self, value: str) -> str:
        """`value` as this terminal can show it."""
        if not self.ascii or value.isascii():
            return value
        return value.replace("…", "~").encode("ascii", "replace").decode()

    def lines(self, lines: Sequence[Line]) -> list[Line]:
        """The last step of every painter, because cutting a line to its width adds a mark."""
        if not self.ascii:
            return list(lines)
        return [tuple(Span(self.text(span.text), span.role) for span in line) for line in lines]


UNICODE = Glyphs(
    ascii=False,
    chart="braille",
    rule="─",
    corner="┬",
    cut="…",
    arrow="→",
    dot="·",
    degree="°",
    check="✓",
    cross="✗",
    bar_full="█",
    bar_parts="▏▎▍▌▋▊▉",
    bar_empty="░",
    marker="┊",
    up="▲",
    down="▼",
)
ASCII = Glyphs(
    ascii=True,
    chart="ascii",
    rule="-",
    corner="+",
    cut="~",
    arrow="->",
    dot="-",
    degree="",
    check="+",
    cross="x",
    bar_full="#",
    bar_parts="",
    bar_empty=".",
    marker=":",
    up="^",
    down="v",
)
BLOCK = Glyphs(**{**{name: getattr(UNICODE, name) for name in Glyphs.__slots__}, "chart": "block"})
BY_NAME = {"braille": UNICODE, "block": BLOCK, "ascii": ASCII}


def is_utf8(environ: Mapping[str, str]) -> bool:
    """Whether the operator's locale names UTF-8. The interpreter coerces C to C.UTF-8, so LC_CTYPE is asked last."""
    for name in ("LC_ALL", "LANG"):
        value = environ.get(name, "")
        if name == "LANG" and environ.get("LC_CTYPE") and value not in ("C", "POSIX"):
            value = environ["LC_CTYPE"]
        if value:
            return "utf" in value.lower()
    return True


def glyphs_for(environ: Mapping[str, str]) -> Glyphs:
    """SPECCTL_GLYPHS (braille, block, ascii) decides; then the locale; then what the terminal's font is known for."""
    if chosen := BY_NAME.get(environ.get("SPECCTL_GLYPHS", "")):
        return chosen
    if not is_utf8(environ):
        return ASCII
    # The Linux console's font has block elements but no braille.
    return BLOCK if environ.get("TERM") == "linux" else UNICODE
