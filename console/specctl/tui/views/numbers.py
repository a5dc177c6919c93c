"""The numbers under the mode bar: a label over each value, its age in the label where it is old."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from specctl.core.snapshot import EngineNumbers, Reading
from specctl.tui.format import (
    DASH,
    adaptive,
    age_of,
    is_stale,
    milliseconds,
    number,
    percent_value,
    rough,
)
from specctl.tui.text import Line, Role, Span, cell, crop
from specctl.tui.views.frame import Frame, header


@dataclass(frozen=True, slots=True)
class Number:
    """`readings`: those that the text is made of; `least`: cells that the column always takes."""

    id: str
    label: str
    least: int
    readings: Callable[[EngineNumbers], tuple[Reading, ...]]
    text: Callable[[EngineNumbers], str]
    meaning: str


def _percent(reading: Reading) -> str:
    value = percent_value(reading)
    return DASH if value is None else f"{value:.0f} %"


def _pair(a: Reading, b: Reading) -> str:
    return DASH if not (a.is_known or b.is_known) else f"{milliseconds(a.value)}/{milliseconds(b.value)} ms"


NUMBERS: tuple[Number, ...] = (
    Number(
        "tokens", "tok/s", 8,
        lambda e: (e.tokens_per_second,),
        lambda e: adaptive(e.tokens_per_second.value),
        "tokens generated a second by all requests together, from the engine's counters over the window",
    ),
    Number(
        "length", "L", 6,
        lambda e: (e.acceptance_length,),
        lambda e: number(e.acceptance_length.value, 2),
        "acceptance length: tokens committed per request and round, the bonus token included; a dash in off",
    ),
    Number(
        "rate", "accept", 7,
        lambda e: (e.acceptance_rate,),
        lambda e: _percent(e.acceptance_rate),
        "acceptance rate: (L - 1) / draft steps; a dash in off, where nothing is drafted",
    ),
    Number(
        "running", "run", 4,
        lambda e: (e.running,),
        lambda e: number(e.running.value),
        "requests that the engine decodes now",
    ),
    Number(
        "queued", "queue", 6,
        lambda e: (e.queued,),
        lambda e: number(e.queued.value),
        "requests that wait for a place in the batch",
    ),
    Number(
        "kv", "KV", 6,
        lambda e: (e.kv_usage,),
        lambda e: _percent(e.kv_usage),
        "share of the key-value cache in use; near 100 % the engine retracts requests",
    ),
    Number(
        "ttft", "TTFT p50/p99", 14,
        lambda e: (e.ttft_p50_ms, e.ttft_p99_ms),
        lambda e: _pair(e.ttft_p50_ms, e.ttft_p99_ms),
        "time to first token, median and 99th percentile over the window",
    ),
    Number(
        "itl", "ITL p50/p99", 14,
        lambda e: (e.itl_p50_ms, e.itl_p99_ms),
        lambda e: _pair(e.itl_p50_ms, e.itl_p99_ms),
        "time between tokens of one request, median and 99th percentile over the window",
    ),
)  # fmt: skip


def _oldest(readings: tuple[Reading, ...], lag: float) -> float | None:
    ages = [age for r in readings if is_stale(r, lag) for age in (age_of(r, lag) or lag,)]
    return max(ages, default=None)


def shared_age(frame: Frame) -> str | None:
    """The age of the numbers when all that are known are equally old; it then stands in the header, once."""
    engine = frame.snapshot.engine if frame.snapshot else EngineNumbers()
    known = [r for item in NUMBERS for r in item.readings(engine) if r.is_known]
    ages = {rough(age) if (age := _oldest((r,), frame.view.lag)) is not None else None for r in known}
    return ages.pop() if len(ages) == 1 else None


def _has_header(frame: Frame) -> bool:
    """A low terminal gives the panel an even number of lines: labels and values only."""
    return frame.height % 2 == 1


def _columns(frame: Frame) -> list[tuple[str, str, Role, int]]:
    """(label, value, role, width) of each number."""
    engine = frame.snapshot.engine if frame.snapshot else EngineNumbers()
    out = []
    shared = shared_age(frame) if _has_header(frame) else None
    for item in NUMBERS:
        age = _oldest(item.readings(engine), frame.view.lag)
        value = item.text(engine)
        label = item.label if age is None or shared else f"{item.label} {rough(age)} old"
        role = Role.STALE if age is not None else Role.DIM if value == DASH else Role.STRONG
        out.append((label, value, role, max(item.least, len(label), len(value))))
    return out


def _bands(frame: Frame) -> list[list[tuple[str, str, Role, int]]]:
    bands: list[list[tuple[str, str, Role, int]]] = [[]]
    used = 1
    for column in _columns(frame):
        if used + column[3] > frame.width and bands[-1]:
            bands.append([])
            used = 1
        bands[-1].append(column)
        used += column[3] + 2
    return bands


def numbers_height(frame: Frame) -> int:
    return 1 + 2 * len(_bands(replace(frame, height=1)))


def numbers(frame: Frame) -> list[Line]:
    engine = frame.snapshot.engine if frame.snapshot else EngineNumbers()
    bands = _bands(frame)
    # What a wide terminal has to spare goes between the columns.
    spare = frame.width - 2 - sum(c[3] + 2 for c in bands[0]) if len(bands) == 1 else 0
    gap = 2 + max(0, min(6, spare // max(1, len(bands[0]))))
    shared = shared_age(frame)
    remark = Span(f"{shared} old", Role.STALE) if shared else Span(f"over {engine.window_s:.0f} s", Role.DIM)
    lines = [header(frame, "now", [remark])] if _has_header(frame) else []
    for band in bands:
        labels: list[Span] = [Span(" ")]
        values: list[Span] = [Span(" ")]
        for index, (label, value, role, width) in enumerate(band):
            width += gap if index < len(band) - 1 else 0
            labels.append(cell(label, width, Role.STALE if role is Role.STALE else Role.DIM))
            values.append(cell(value, width, role))
        lines.extend((crop(labels, frame.width), crop(values, frame.width)))
    return lines
