"""The mode bar and the line under it: the current mode, the flip under way, and why a mode cannot be chosen."""

from __future__ import annotations

from specctl.core.snapshot import Flip
from specctl.core.states import FlipState, PatchStatus
from specctl.tui.actions import key_of_mode
from specctl.tui.format import milliseconds, rough
from specctl.tui.text import EMPTY, Line, Role, Span, crop, spread, take_fitting, width_of
from specctl.tui.views.frame import Frame


def _elapsed_ms(frame: Frame, flip: Flip) -> str:
    now = frame.view.clock
    if now is None or not flip.requested_at:
        return ""
    return f"{max(0.0, now - flip.requested_at) * 1000:,.0f} ms"


def _pending_mode(frame: Frame) -> tuple[str, str] | None:
    """(mode, what is known of the flip to it) while a flip is under way."""
    view = frame.view
    if view.asking:
        return view.asking.mode, f"{(view.now - view.asking.at) * 1000:,.0f} ms"
    if view.pending and not view.pending.state.is_final:
        return view.pending.to_mode, _elapsed_ms(frame, view.pending)
    return None


def mode_bar(frame: Frame) -> list[Line]:
    """One chip a mode with its key; the current one in brackets, the pending one with its elapsed time."""
    title = (Span(" mode ", Role.TITLE),)
    snapshot = frame.snapshot
    if snapshot is None or not snapshot.speculation.modes:
        return [crop((*title, Span(" -", Role.DIM)), frame.width)]
    speculation = snapshot.speculation
    keys = key_of_mode(frame.view)
    pending = _pending_mode(frame)
    line: list[Span] = list(title)
    for info in speculation.modes:
        name = info.mode.name
        shape = f" {info.mode.shape}" if frame.width >= 120 else ""
        blocked = frame.view.mode_refusal(name) is not None
        line.append(Span(f" {keys.get(name, ' ')} ", Role.DIM if blocked else Role.KEY))
        if name == speculation.mode:
            line.append(Span(f"[{name.upper()}{shape}]", Role.CHIP_MODE))
        elif pending and pending[0] == name:
            line.append(Span(f"({name} {pending[1]})", Role.CHIP_BUSY))
        elif blocked:
            line.append(Span(f" {name}{shape} {frame.glyphs.cross}", Role.DIM))
        else:
            line.append(Span(f" {name}{shape} "))
    room = frame.width - width_of(line) - 2
    return [spread(line, (*take_fitting(_who(frame), room), Span(" ")), frame.width)]


def _who(frame: Frame) -> tuple[Line, ...]:
    """Who chose the current mode, when, under which epoch, on how many ranks; most important first."""
    assert frame.snapshot is not None
    speculation, now = frame.snapshot.speculation, frame.view.clock
    who = frame.foreign(speculation.actor) or (str(speculation.cause) if speculation.cause else "")
    ago = f" {rough(now - speculation.since)} ago" if speculation.since is not None and now is not None else ""
    last = speculation.last_flip
    took = milliseconds(last.latency_ms) if last and last.latency_ms is not None else ""
    ranks = ""
    if last and last.ranks_total and last.epoch == speculation.epoch:
        ranks = f"{last.ranks_confirmed}/{last.ranks_total} ranks"
    elif speculation.ranks:
        ranks = f"{speculation.ranks} rank{'s' * (speculation.ranks != 1)}"
    return (
        (Span(str(speculation.control), Role.TEXT),),
        (Span("by ", Role.DIM), Span(who), Span(ago, Role.DIM)) if who else EMPTY,
        (Span(f"e{speculation.epoch}", Role.DIM),),
        (Span(f"{took} ms"),) if took else EMPTY,
        (Span(ranks, Role.DIM),) if ranks else EMPTY,
    )


def flip_line(frame: Frame) -> list[Line]:
    """The most urgent one of: the flip under way, a refusal, why modes are greyed, the last flip."""
    for choose in (_under_way, _notice, _greyed, _last_flip):
        if line := choose(frame):
            return [crop((Span(" "), *line), frame.width)]
    return [EMPTY]


def _under_way(frame: Frame) -> Line:
    view, glyphs = frame.view, frame.glyphs
    if view.asking:
        step = f"accepted as e{view.asking.epoch}" if view.asking.accepted and view.asking.epoch else "requested"
        took = f"{(view.now - view.asking.at) * 1000:,.0f} ms"
        return (Span(f"flip {glyphs.arrow} {view.asking.mode}: {step}, {took}", Role.BUSY),)
    flip = view.pending
    if flip is None or flip.state.is_final:
        return EMPTY
    ranks = f", {flip.ranks_confirmed}/{flip.ranks_total} ranks" if flip.ranks_total else ""
    known = {
        FlipState.REQUESTED: "requested",
        FlipState.ACKNOWLEDGED: "acknowledged, waits for the next round",
    }.get(flip.state, str(flip.state))
    text = f"flip e{flip.epoch} {_route(frame, flip)}  {_elapsed_ms(frame, flip)}{ranks}: {known}"
    return (Span(text, Role.BUSY),)


def _route(frame: Frame, flip: Flip) -> str:
    arrow = frame.glyphs.arrow
    return frame.foreign(f"{flip.from_mode} {arrow} {flip.to_mode}" if flip.from_mode else f"{arrow} {flip.to_mode}")


def _notice(frame: Frame) -> Line:
    notice = frame.view.notice
    if notice is None:
        return EMPTY
    return (
        Span("! " if notice.bad else "", Role.BAD),
        Span(frame.foreign(notice.text), Role.BAD if notice.bad else Role.TEXT),
    )


def _greyed(frame: Frame) -> Line:
    """Why no mode, or which mode, cannot be chosen."""
    snapshot = frame.snapshot
    if snapshot is None or not snapshot.speculation.modes:
        return EMPTY
    speculation = snapshot.speculation
    if speculation.patch in (PatchStatus.REFUSED, PatchStatus.ABSENT):
        why = frame.foreign(speculation.patch_reason) or "the server runs without it"
        return (Span(f"{frame.glyphs.cross} no flips: patch {speculation.patch}: {why}", Role.WARN),)
    others = [m.mode.name for m in speculation.modes if m.mode.name != speculation.mode]
    reasons = {name: blocked for name in others if (blocked := frame.view.mode_refusal(name))}
    if not reasons:
        return EMPTY
    if len(set(reasons.values())) == 1 and len(reasons) == len(others):
        return (Span(f"{frame.glyphs.cross} no flips: {frame.foreign(next(iter(reasons.values())))}", Role.WARN),)
    text = "; ".join(f"{name}: {frame.foreign(reason)}" for name, reason in reasons.items())
    return (Span(f"{frame.glyphs.cross} {text}", Role.WARN),)


def short_flip(frame: Frame, flip: Flip) -> Line:
    """A flip's outcome for a narrow list: route, result, who."""
    route = (Span(_route(frame, flip), Role.STRONG),)
    if flip.state is not FlipState.CONFIRMED:
        return flip_words(frame, flip)
    took = f" {milliseconds(flip.latency_ms)} ms" if flip.latency_ms is not None else " confirmed"
    who = frame.foreign(flip.actor) if flip.actor else str(flip.cause)
    return (*route, Span(took, Role.OK), Span(f" {who}", Role.DIM))


def flip_words(frame: Frame, flip: Flip) -> Line:
    """A flip's outcome in words: route, result, latency, ranks, who and why."""
    route = (Span(_route(frame, flip), Role.STRONG),)
    if flip.state is FlipState.CONFIRMED:
        took = f" in {milliseconds(flip.latency_ms)} ms" if flip.latency_ms is not None else ""
        engine = f" (engine {milliseconds(flip.engine_ms)})" if flip.engine_ms is not None else ""
        ranks = f", {flip.ranks_confirmed}/{flip.ranks_total} ranks" if flip.ranks_total else ""
        result: Line = (Span(f" confirmed{took}", Role.OK), Span(f"{engine}{ranks}"))
    elif flip.state is FlipState.REFUSED:
        result = (Span(f" refused: {frame.foreign(flip.refusal) or 'no reason given'}", Role.BAD),)
    elif flip.state is FlipState.UNCONFIRMED:
        result = (Span(" NOT CONFIRMED by read-back", Role.BAD),)
    else:
        result = (Span(f" {flip.state}", Role.BUSY),)
    who = frame.foreign(flip.actor) if flip.actor else str(flip.cause)
    said = f' "{frame.foreign(flip.reason)}"' if flip.reason else ""
    return (*route, *result, Span(f" {frame.glyphs.dot} {who}{said}", Role.DIM))


def _last_flip(frame: Frame) -> Line:
    flip = frame.snapshot.speculation.last_flip if frame.snapshot else None
    if flip is None:
        return EMPTY
    return (Span(f"last flip e{flip.epoch} ", Role.DIM), *flip_words(frame, flip))
