"""Numbers as status lines show them: unknown is a dash, an old one carries its age."""

from __future__ import annotations

from specctl.core.snapshot import Reading

DASH = "-"
STALE_AFTER_S = 5.0
_GIB = 2.0**30


def number(value: float | None, digits: int = 0) -> str:
    return DASH if value is None else f"{value:,.{digits}f}"


def reading(value: Reading, digits: int = 0, unit: str = "") -> str:
    """The reading with its unit, and with its age when it is no longer fresh."""
    return _aged(value, number(value.value, digits), unit)


def percent(value: Reading) -> str:
    """A reading in % as it is; in any other unit it is a share in [0, 1]."""
    scaled = None if value.value is None else value.value if value.unit == "%" else value.value * 100
    return _aged(value, number(scaled), "%")


def used_of(used: Reading, total: Reading) -> str:
    """Two readings of bytes in GiB: "71.2/140.0 GiB"."""
    if used.value is None:
        return DASH
    most = DASH if total.value is None else f"{total.value / _GIB:.1f}"
    return _aged(used, f"{used.value / _GIB:.1f}/{most}", "GiB")


def duration(seconds: float | None) -> str:
    """ "4s", "3m12s", "2h05m", "3d04h"."""
    if seconds is None:
        return DASH
    total = max(0, int(seconds))
    for size, unit, part, part_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if total >= size:
            return f"{total // size}{unit}{total % size // part:02d}{part_unit}"
    return f"{total}s"


def _aged(value: Reading, text: str, unit: str) -> str:
    if value.value is None:
        return DASH
    text = f"{text} {unit}" if unit else text
    old = value.age is not None and value.age > STALE_AFTER_S
    return f"{text} ({duration(value.age)} old)" if old else text
