"""The server line, the line under it that says what is wrong, and the panel that stands in while nothing serves."""

from __future__ import annotations

from specctl.core.snapshot import ServerInfo, StartStep
from specctl.core.states import ServerState, StepStatus
from specctl.tui.format import DASH, STALE_AFTER_S, clock, duration, rough
from specctl.tui.store import LinkState
from specctl.tui.text import EMPTY, Line, Role, Span, cell, crop, ellipsize, spread, take_fitting, width_of, wrap
from specctl.tui.views.frame import Frame, fill, header

_CHIPS = {
    ServerState.READY: Role.CHIP_OK,
    ServerState.DEGRADED: Role.CHIP_WARN,
    ServerState.BACKOFF: Role.CHIP_WARN,
    ServerState.FAILED: Role.CHIP_BAD,
    ServerState.STOPPED: Role.CHIP_IDLE,
}


LEAST_MODEL = 26


def _name(model: str | None) -> str:
    """The last part of a path or of a hub name; the whole is in the help screen."""
    return (model or "").rstrip("/").rsplit("/", 1)[-1]


def _chip(frame: Frame) -> Line:
    view = frame.view
    if view.snapshot is None:
        text = "CONNECTING" if view.link.state is LinkState.CONNECTING else "NO DAEMON"
        return (Span(f" {text} ", Role.CHIP_BUSY if text == "CONNECTING" else Role.CHIP_BAD),)
    state = view.snapshot.server.state
    if view.link.state is LinkState.LOST:
        return (Span(f" {state}? ", Role.CHIP_WARN),)
    return (Span(f" {state} ", _CHIPS.get(state, Role.CHIP_BUSY)),)


def _uptime(frame: Frame, server: ServerInfo) -> Line:
    now = frame.view.clock
    if now is None:
        return EMPTY
    if server.state.is_serving and server.ready_at is not None:
        return (Span("up ", Role.DIM), Span(duration(now - server.ready_at)))
    if server.since is not None and not server.state.is_serving:
        return (Span("for ", Role.DIM), Span(duration(now - server.since)))
    return EMPTY


def server_line(frame: Frame) -> list[Line]:
    """State, model and draft at the left; host, uptime, run and time at the right."""
    chip = _chip(frame)
    snapshot = frame.snapshot
    if snapshot is None:
        where = frame.foreign(frame.view.socket)
        return [crop((Span(" "), *chip, Span("  daemon at ", Role.DIM), Span(where)), frame.width)]
    server = snapshot.server
    model, draft = frame.foreign(_name(server.model)), frame.foreign(_name(server.draft))
    what: Line = (Span(model or frame.foreign(server.profile) or "no model", Role.STRONG if model else Role.DIM),)
    if draft:
        what = (*what, Span(" + ", Role.DIM), Span(draft))
    left = (Span(" "), *chip, Span(" "), *what)
    run = EMPTY if server.run is None else (Span("run ", Role.DIM), Span(str(server.run)))
    name = ellipsize(frame.foreign(snapshot.daemon.host.partition(".")[0]), 20)
    host = (Span(name, Role.DIM),) if name else EMPTY
    now = (Span(clock(frame.view.clock), Role.DIM),)
    wide = frame.width >= 120
    engine = (
        (Span(f"sglang {frame.foreign(server.engine_version)}", Role.DIM),) if wide and server.engine_version else EMPTY
    )
    profile = (Span("profile ", Role.DIM), Span(frame.foreign(server.profile))) if wide and server.profile else EMPTY
    lock = (Span("READ-ONLY", Role.WARN),) if frame.view.read_only or snapshot.daemon.read_only else EMPTY
    room = frame.width - min(width_of(left), width_of(chip) + LEAST_MODEL) - 3
    right = take_fitting((lock, _uptime(frame, server), run, host, now, profile, engine), room)
    return [spread(left, (*right, Span(" ")), frame.width)]


def alert_lines(frame: Frame) -> list[Line]:
    """What the operator must know before any number: a lost link, a degraded or leaving server. Often no line."""
    view, snapshot = frame.view, frame.snapshot
    lines: list[Line] = []
    mark = Span(" ! ", Role.BAD)
    if view.link.state is LinkState.LOST:
        since = duration(view.now - view.link.since)
        text = f"reconnecting to the daemon for {since}: {frame.foreign(view.link.reason)}"
        lines.append((mark, Span(text, Role.BAD)))
        if snapshot is not None:
            lines.append((Span("   "), Span(f"everything below is from {clock(snapshot.at)}", Role.STALE)))
        elif view.link.remedy:
            lines.append((Span("   "), Span(frame.foreign(view.link.remedy), Role.TEXT)))
    elif snapshot is not None and view.lag > STALE_AFTER_S:
        text = f"no news from the daemon for {duration(view.lag)}; everything below is from {clock(snapshot.at)}"
        lines.append((mark, Span(text, Role.WARN)))
    if snapshot is not None and snapshot.server.state in (
        ServerState.DEGRADED,
        ServerState.DRAINING,
        ServerState.STOPPING,
    ):
        lines.extend(_leaving(frame, snapshot.server, mark))
    return [crop(line, frame.width) for line in lines]


def _leaving(frame: Frame, server: ServerInfo, mark: Span) -> list[Line]:
    lines: list[Line] = []
    if server.reason:
        lines.append((mark, Span(frame.foreign(server.reason), Role.WARN)))
    if server.remedy:
        lines.append((Span("   "), Span(frame.foreign(server.remedy))))
    lines.extend((Span("   waits for ", Role.DIM), Span(frame.foreign(who))) for who in server.blockers[:4])
    return lines


def takes_stage(frame: Frame) -> bool:
    """Whether the stage (steps, failure, first words) stands where charts and tables would."""
    if frame.snapshot is None:
        return True
    state = frame.snapshot.server.state
    return not state.is_serving and state not in (ServerState.DRAINING, ServerState.STOPPING)


def stage(frame: Frame) -> list[Line]:
    """What is shown instead of charts while no server serves."""
    snapshot = frame.snapshot
    if snapshot is None:
        return fill(_no_daemon(frame), frame.height)
    server = snapshot.server
    if server.state in (ServerState.PREFLIGHT, ServerState.STARTING):
        return fill(_steps(frame, server), frame.height)
    if server.state is ServerState.STOPPED and not server.reason:
        return fill(_stopped(frame), frame.height)
    return fill(_outcome(frame, server), frame.height)


def _no_daemon(frame: Frame) -> list[Line]:
    if frame.view.link.state is LinkState.CONNECTING:
        return [EMPTY, (Span("   waiting for the daemon's first snapshot", Role.DIM),)]
    return [
        EMPTY,
        (Span("   no daemon answers. This console keeps trying and attaches by itself.", Role.TEXT),),
        EMPTY,
        (Span("   start one:  ", Role.DIM), Span("specctl up PROFILE", Role.STRONG)),
        (Span("   check it:   ", Role.DIM), Span("specctl doctor", Role.STRONG)),
    ]


def _stopped(frame: Frame) -> list[Line]:
    profile = frame.foreign(frame.snapshot.server.profile) if frame.snapshot else ""
    return [
        header(frame, "no server runs"),
        (Span("   start one:  ", Role.DIM), Span(f"specctl up {profile or 'PROFILE'}", Role.STRONG)),
        *([(Span("   or press    ", Role.DIM), Span("r", Role.KEY))] if profile else []),
    ]


_STEP_MARKS = {
    StepStatus.WAITING: (DASH, Role.DIM),
    StepStatus.RUNNING: (">", Role.BUSY),
    StepStatus.DONE: ("ok", Role.OK),
    StepStatus.FAILED: ("FAILED", Role.BAD),
}
BAR = 20


def bar(share: float, width: int, frame: Frame, role: Role) -> Line:
    """A bar of exactly `width` cells for a share in [0, 1]."""
    glyphs = frame.glyphs
    parts = glyphs.bar_parts
    steps = len(parts) + 1
    units = round(max(0.0, min(1.0, share)) * width * steps)
    full, rest = divmod(units, steps)
    text = glyphs.bar_full * full + (parts[rest - 1] if rest and parts else "")
    return (Span(text, role), Span(glyphs.bar_empty * (width - len(text)), Role.RULE))


def _step_line(frame: Frame, step: StartStep, name_width: int) -> Line:
    text, role = _STEP_MARKS[step.status]
    line: list[Span] = [
        Span("  "),
        cell(frame.foreign(step.name), name_width),
        Span(" "),
        cell(text, 6, role),
        Span(" "),
    ]
    running = step.status is StepStatus.RUNNING
    share = step.fraction
    if running and share is None and step.seconds is not None and step.usual_s:
        share = min(0.99, step.seconds / step.usual_s)
    seconds = DASH if step.seconds is None else f"{step.seconds:.1f} s"
    line.append(cell(seconds, 9, Role.STRONG if running else Role.TEXT, right=True))
    usual = f" of ~{step.usual_s:.0f} s" if step.usual_s and step.status is not StepStatus.DONE else ""
    line.append(cell(usual, 11, Role.DIM))
    if frame.width >= 76 and running and share is not None:
        line.extend((Span(" "), *bar(share, BAR, frame, Role.BUSY)))
    line.append(Span(" " + frame.foreign(step.detail), Role.DIM))
    return crop(line, frame.width)


def _steps(frame: Frame, server: ServerInfo) -> list[Line]:
    steps = server.steps
    spent = sum(s.seconds or 0.0 for s in steps)
    known = [s.usual_s for s in steps]
    total = f" of ~{duration(sum(s for s in known if s))}" if steps and all(known) else ""
    done = sum(s.status is StepStatus.DONE for s in steps)
    now, start = frame.view.clock, server.started_at or server.since
    elapsed = now - start if now is not None and start is not None else spent
    right = [Span(f"{done}/{len(steps)} steps  {duration(elapsed)}{total}", Role.STRONG)]
    name_width = max([14, *(len(s.name) for s in steps)]) if frame.width >= 76 else 14
    lines = [header(frame, "starting", right)]
    if steps and frame.height > len(steps) + 2:
        part = sum((s.fraction or 0.0) for s in steps if s.status is StepStatus.RUNNING)
        share = min(1.0, elapsed / sum(s for s in known if s)) if total else (done + part) / len(steps)
        lines.append((Span("  "), *bar(share, frame.width - 4, frame, Role.BUSY)))
    lines.extend(_step_line(frame, step, min(name_width, 24)) for step in steps)
    if not steps:
        lines.append((Span("  the first step has not begun", Role.DIM),))
    return lines


def _outcome(frame: Frame, server: ServerInfo) -> list[Line]:
    state = str(server.state)
    tries = f"  after {server.restarts} restart{'s' * (server.restarts != 1)}" if server.restarts else ""
    code = "" if server.exit_code is None else f"exit {server.exit_code}"
    now = frame.view.clock
    retry = ""
    if server.retry_at is not None and now is not None:
        retry = f"  next try in {duration(server.retry_at - now)}"
    role = Role.BAD if server.state is ServerState.FAILED else Role.WARN
    lines = [header(frame, state, [Span(f"{code}{tries}{retry}".strip(), role)] if code or tries or retry else [])]
    width = max(10, frame.width - 12)
    for index, text in enumerate(wrap(frame.foreign(server.reason) or "no reason is known", width)):
        lines.append((Span("  why     " if not index else " " * 10, Role.DIM), Span(text, role)))
    for index, text in enumerate(wrap(frame.foreign(server.remedy), width)):
        lines.append((Span("  remedy  " if not index else " " * 10, Role.DIM), Span(text, Role.STRONG)))
    lines.extend((Span("  waits   ", Role.DIM), Span(frame.foreign(who))) for who in server.blockers[:4])
    lines.append(
        (
            Span("  next    ", Role.DIM),
            Span("r", Role.KEY),
            Span(" start again   ", Role.DIM),
            Span("l", Role.KEY),
            Span(" whole log", Role.DIM),
        )
    )
    room = frame.height - len(lines) - 1
    if server.last_lines and room > 0:
        ago = f"{rough(now - server.since)} ago" if now is not None and server.since is not None else ""
        lines.append(header(frame, "its last lines", [Span(ago, Role.DIM)] if ago else []))
        lines.extend(crop((Span("  "), Span(frame.foreign(text))), frame.width) for text in server.last_lines[-room:])
    return lines
