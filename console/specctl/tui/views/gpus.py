"""The GPU table: one line a GPU, two GPUs a line where there are many and the terminal is low."""

from __future__ import annotations

from specctl.core.snapshot import Gpu, Reading
from specctl.tui.format import DASH, gibibytes, is_stale, percent_value, rough
from specctl.tui.text import Line, Role, Span, beside, cell, crop, width_of
from specctl.tui.views.frame import Frame, fill, header
from specctl.tui.views.server import bar

BAR = 8
FULL_CELL = 35
SMALL_CELL = 17


def _role(reading: Reading, lag: float, role: Role = Role.TEXT) -> Role:
    return Role.DIM if not reading.is_known else Role.STALE if is_stale(reading, lag) else role


def _whole(reading: Reading, unit: str = "") -> str:
    return DASH if reading.value is None else f"{reading.value:.0f}{unit}"


def _of(used: str, total: str, unit: str) -> str:
    if used == DASH and total == DASH:
        return DASH
    return f"{used}/{total} {unit}" if total != DASH else f"{used} {unit}"


def memory_text(used: Reading, total: Reading) -> str:
    def text(value: float | None) -> str:
        return DASH if value is None else f"{value:.0f}" if value >= 10 or value == 0 else f"{value:.1f}"

    return _of(text(gibibytes(used)), text(gibibytes(total)), "GiB")


def note_of(frame: Frame, gpu: Gpu) -> Span:
    """What is odd about a GPU: throttling, foreign processes, an old reading; nothing is the good case."""
    parts = [frame.foreign(reason) for reason in gpu.throttle]
    strangers = [p for p in gpu.processes if not p.ours]
    if strangers:
        parts.append(f"{len(strangers)} foreign process{'es' * (len(strangers) != 1)}, pid {strangers[0].pid}")
    lag = frame.view.lag
    if is_stale(gpu.utilization, lag) and lag <= 3:
        parts.append(f"{rough(gpu.utilization.age)} old")
    return Span("; ".join(parts), Role.WARN if parts else Role.DIM)


def _utilization(frame: Frame, gpu: Gpu, bar_width: int) -> Line:
    value = percent_value(gpu.utilization)
    role = _role(gpu.utilization, frame.view.lag, Role.STRONG)
    text = DASH if value is None else f"{value:.0f} %"
    drawn = bar(value / 100, bar_width, frame, Role.OK) if value is not None else (Span(" " * bar_width),)
    return (cell(text, 6, role, right=True), Span(" "), *(drawn if bar_width else ()))


def _row(frame: Frame, gpu: Gpu) -> Line:
    lag = frame.view.lag
    head = (Span(" "), cell(str(gpu.index), 3, Role.STRONG))
    name = cell(frame.foreign(_short(gpu.name)), 12, Role.DIM)
    if gpu.lost is not None:
        return crop((*head, name, Span(" LOST  ", Role.BAD), Span(frame.foreign(gpu.lost), Role.BAD)), frame.width)
    degree = f"{frame.glyphs.degree}C"
    return crop(
        (
            *head,
            name,
            *_utilization(frame, gpu, BAR if frame.width < 120 else 16),
            Span(" "),
            cell(memory_text(gpu.memory_used, gpu.memory_total), 12, _role(gpu.memory_used, lag), right=True),
            cell(_of(_whole(gpu.power), _whole(gpu.power_limit), "W"), 11, _role(gpu.power, lag), right=True),
            cell(_whole(gpu.temperature, degree), 6, _role(gpu.temperature, lag), right=True),
            cell(_whole(gpu.sm_clock, " MHz"), 10, _role(gpu.sm_clock, lag), right=True),
            Span(" "),
            note_of(frame, gpu),
        ),
        frame.width,
    )


def _short(name: str) -> str:
    return name.replace("NVIDIA ", "", 1)


def _columns(frame: Frame) -> list[Span]:
    """Column titles that stand over the columns of `_row`; the title "GPU" and its margins are 6 cells."""
    wide = BAR if frame.width < 120 else 16
    return [
        Span(" " * 10, Role.RULE),
        cell("util", 7 + wide, Role.DIM),
        Span(" "),
        cell("memory", 12, Role.DIM, right=True),
        cell("power", 11, Role.DIM, right=True),
        cell("temp", 6, Role.DIM, right=True),
        cell("SM clock", 10, Role.DIM, right=True),
        Span(" "),
    ]


def _cell(frame: Frame, gpu: Gpu, width: int) -> Line:
    """One GPU in a fraction of a line: as much as `width` holds, utilization and memory first."""
    lag = frame.view.lag
    head = (Span(" "), cell(str(gpu.index), 2, Role.STRONG))
    if gpu.lost is not None:
        return crop((*head, Span(" LOST ", Role.BAD), Span(frame.foreign(gpu.lost), Role.BAD)), width - 1)
    note = note_of(frame, gpu)
    utilization = cell(_whole(gpu.utilization, " %"), 5, _role(gpu.utilization, lag, Role.STRONG), right=True)
    mark = Span(" !" if note.text else "  ", Role.WARN)
    if width < FULL_CELL:
        used = gibibytes(gpu.memory_used)
        memory = cell(DASH if used is None else f"{used:.0f}G", 5, _role(gpu.memory_used, lag), right=True)
        return crop((*head, utilization, memory, mark), width - 1)
    degree = f"{frame.glyphs.degree}C"
    line = (
        *head,
        utilization,
        cell(memory_text(gpu.memory_used, gpu.memory_total), 12, _role(gpu.memory_used, lag), right=True),
        cell(_whole(gpu.power, " W"), 6, _role(gpu.power, lag), right=True),
        cell(_whole(gpu.temperature, degree), 5, _role(gpu.temperature, lag), right=True),
        mark,
        Span(" "),
        note,
    )
    return crop(line, width - 1)


def host_line(frame: Frame) -> Line:
    """What the machine itself does; the only numbers there are without a GPU."""
    assert frame.snapshot is not None
    host, lag = frame.snapshot.host, frame.view.lag
    cpu = percent_value(host.cpu_percent)
    server = gibibytes(host.server_memory)
    parts: list[Span] = [
        Span("host CPU ", Role.DIM),
        Span(DASH if cpu is None else f"{cpu:.0f} %", _role(host.cpu_percent, lag, Role.STRONG)),
        Span("  memory ", Role.DIM),
        Span(memory_text(host.memory_used, host.memory_total), _role(host.memory_used, lag, Role.STRONG)),
    ]
    if server is not None:
        parts += [Span("  server ", Role.DIM), Span(f"{server:.1f} GiB", _role(host.server_memory, lag, Role.STRONG))]
    return tuple(parts)


def _no_gpu(frame: Frame) -> list[Line]:
    """Why there is no GPU, and what the host does; one line where it fits."""
    assert frame.snapshot is not None
    why = Span(f" no GPU: {frame.foreign(frame.snapshot.gpu_note) or 'none found'}", Role.DIM)
    host = host_line(frame)
    if width_of((why,)) + width_of(host) + 2 <= frame.width:
        return [(why, Span("  "), *host)]
    return [crop((why,), frame.width), crop((Span(" "), *host), frame.width)]


def gpus_rows(frame: Frame) -> int:
    """Lines that the table wants, its header included."""
    if frame.snapshot is None:
        return 2
    if not frame.snapshot.gpus:
        return 1 + len(_no_gpu(frame))
    return 1 + len(frame.snapshot.gpus)


def gpus(frame: Frame) -> list[Line]:
    snapshot = frame.snapshot
    if snapshot is None:
        return fill([header(frame, "GPU")], frame.height)
    if not snapshot.gpus:
        return fill([header(frame, "GPU"), *_no_gpu(frame)], frame.height)
    rows = frame.height - 1
    if len(snapshot.gpus) <= rows and frame.width >= 76:
        lines = [header(frame, "GPU", columns=_columns(frame)), *(_row(frame, gpu) for gpu in snapshot.gpus)]
        return fill(lines, frame.height)
    return fill(_packed(frame, snapshot.gpus, rows), frame.height)


def across(width: int, count: int, rows: int) -> int:
    """GPUs a line, so that `count` fit `rows` lines if that can be: in full cells, else in small ones."""
    full = max(1, width // FULL_CELL)
    return full if full * rows >= count else max(full, width // SMALL_CELL)


def _packed(frame: Frame, all_gpus: tuple[Gpu, ...], rows: int) -> list[Line]:
    """Several GPUs a line. Those in trouble come first when not all fit, and the header says how many are hidden."""
    wide = across(frame.width, len(all_gpus), rows)
    shown = list(all_gpus)
    if len(shown) > rows * wide:
        shown.sort(key=lambda g: (g.lost is None, not g.throttle, g.index))
        shown = sorted(shown[: rows * wide], key=lambda g: g.index)
    hidden = len(all_gpus) - len(shown)
    used = -(-len(shown) // wide)
    per = -(-len(shown) // max(1, used))
    width = frame.width // max(1, per)
    lines: list[Line] = [header(frame, "GPU", [Span(f"{hidden} more", Role.WARN)] if hidden else [])]
    for row in range(used):
        line: Line = ()
        for column in range(per):
            place = column * used + row
            if place < len(shown):
                line = beside(line, _cell(frame, shown[place], width), column * width)
        lines.append(line)
    return lines
