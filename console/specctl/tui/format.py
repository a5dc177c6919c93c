"""Numbers as operators read them. Unknown is a dash; an old number carries its age."""

from __future__ import annotations

import time

from specctl.core.snapshot import Reading
from specctl.tui.text import Line, Role, Span

STALE_AFTER_S = 3.0
DASH = "-"


def number(value: float | None, digits: int = 0) -> str:
    """ "1,234" or "2.61"; a dash for None."""
    return DASH if value is None else f"{value:,.{digits}f}"


def adaptive(value: float | None) -> str:
    """Three significant digits below 100, whole numbers above."""
    if value is None:
        return DASH
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 or value == 0 else f"{value:.2f}"


def compact(value: float | None) -> str:
    """At most five characters: 999, 12.3k, 4.56M."""
    if value is None:
        return DASH
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            scaled = value / limit
            digits = 2 if scaled < 10 else 1 if scaled < 100 else 0
            return f"{scaled:.{digits}f}{unit}"
    return f"{value:.0f}"


def duration(seconds: float | None) -> str:
    """ "4s", "3m12s", "2h05m", "3d04h"."""
    if seconds is None:
        return DASH
    total = max(0, int(seconds))
    if total < 60:
        return f"{total}s"
    if total < 3600:
        return f"{total // 60}m{total % 60:02d}s"
    if total < 86400:
        return f"{total // 3600}h{total % 3600 // 60:02d}m"
    return f"{total // 86400}d{total % 86400 // 3600:02d}h"


def rough(seconds: float | None) -> str:
    """One unit only, so that it changes seldom: "4s", "12m", "2h", "3d"."""
    if seconds is None:
        return DASH
    total = max(0, int(seconds))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if total >= size:
            return f"{total // size}{unit}"
    return f"{total}s"


def milliseconds(value: float | None) -> str:
    if value is None:
        return DASH
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def clock(at: float | None) -> str:
    """Local wall-clock time of a Unix time."""
    return DASH if at is None else time.strftime("%H:%M:%S", time.localtime(at))


_BYTE_UNITS = {"B": 1.0, "bytes": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}


def gibibytes(reading: Reading) -> float | None:
    """The reading in GiB; the unit "" counts as bytes."""
    if reading.value is None:
        return None
    return reading.value * _BYTE_UNITS.get(reading.unit, 1.0) / 2.0**30


def percent_value(reading: Reading) -> float | None:
    """The reading on the scale 0 to 100. A unit other than % is a share in [0, 1]."""
    if reading.value is None:
        return None
    return reading.value if reading.unit in ("%", "percent") else reading.value * 100


def age_of(reading: Reading, lag: float) -> float | None:
    """Seconds since the reading was true, as of now; `lag` is the age of the snapshot that holds it."""
    return None if reading.age is None else reading.age + lag


def is_stale(reading: Reading, lag: float) -> bool:
    age = age_of(reading, lag)
    return reading.is_known and ((age is not None and age > STALE_AFTER_S) or lag > STALE_AFTER_S)


def shown(reading: Reading, text: str, lag: float, role: Role = Role.STRONG, unit: str = "") -> Line:
    """`text` for the reading, with its unit, dimmed and with its age where it is old; a dash where it is unknown."""
    if not reading.is_known:
        return (Span(DASH, Role.DIM),)
    tail = f" {unit}" if unit else ""
    if is_stale(reading, lag):
        age = age_of(reading, lag)
        return (Span(f"{text}{tail} ({rough(lag if age is None else age)} old)", Role.STALE),)
    return (Span(text, role), Span(tail, Role.DIM)) if tail else (Span(text, role),)
