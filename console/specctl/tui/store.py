"""The one place where the TUI's knowledge lives: snapshots, events and lost links, reduced to one frozen view."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from specctl.core.events import Event, HistoryPoint, LogLine
from specctl.core.snapshot import Flip, Reading, Snapshot
from specctl.tui.format import STALE_AFTER_S

MOST_EVENTS = 500
MOST_POINTS = 3600
MOST_LOG_LINES = 200
WINDOWS_S = (300, 900, 3600)
NOTICE_S = 30.0
# Closer together than this, a repeated key is a bouncing or held key, not a second decision.
DEBOUNCE_S = 0.4


class LinkState(StrEnum):
    CONNECTING = "connecting"
    UP = "up"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The way to the daemon. `since` is on the monotonic clock; `reason` says why it is not up."""

    state: LinkState = LinkState.CONNECTING
    since: float = 0.0
    reason: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLost:
    """What a source yields when the daemon cannot be reached; it goes on trying by itself."""

    reason: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A flip that this console asked for and that the daemon's snapshot does not show yet."""

    mode: str
    at: float
    epoch: int | None = None
    accepted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A line for the operator under the mode bar. `at` is on the monotonic clock."""

    text: str
    at: float
    bad: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything that the screen shows. `now` and `received` are on the monotonic clock of this process."""

    now: float = 0.0
    socket: str = ""
    read_only: bool = False
    link: Link = Link()
    snapshot: Snapshot | None = None
    received: float = 0.0
    events: tuple[Event, ...] = ()
    points: tuple[HistoryPoint, ...] = ()
    log: tuple[LogLine, ...] = ()
    asking: Asking | None = None
    notice: Notice | None = None
    window_s: int = WINDOWS_S[0]

    @property
    def lag(self) -> float:
        """Seconds since the shown snapshot arrived."""
        return max(0.0, self.now - self.received) if self.snapshot else 0.0

    @property
    def clock(self) -> float | None:
        """The time now at the daemon's host, Unix seconds; None before the first snapshot."""
        return self.snapshot.at + self.lag if self.snapshot else None

    @property
    def pending(self) -> Flip | None:
        return self.snapshot.speculation.pending if self.snapshot else None

    @property
    def locked(self) -> str | None:
        """Why no command can be given at all, or None."""
        if self.read_only:
            return "read-only: this console was started with --read-only"
        if self.snapshot is None or self.link.state is not LinkState.UP:
            return "no connection to the daemon"
        if self.snapshot.daemon.read_only:
            return "read-only: the daemon was started with --read-only"
        return None

    def mode_refusal(self, name: str) -> str | None:
        """Why this mode cannot be chosen now, or None."""
        if why := self.locked:
            return why
        assert self.snapshot is not None
        if not self.snapshot.server.state.is_serving:
            return f"the server is {self.snapshot.server.state}"
        for info in self.snapshot.speculation.modes:
            if info.mode.name == name:
                return info.unavailable
        return f"the server has no mode {name}"


NOT_DRAFTED = Reading(note="nothing is drafted in this mode")


def _plain_modes(snapshot: Snapshot) -> frozenset[str]:
    """Modes that do not speculate: their acceptance length is 1 by definition and says nothing."""
    return frozenset(m.mode.name for m in snapshot.speculation.modes if m.mode.is_off)


def without_idle_lengths(snapshot: Snapshot) -> Snapshot:
    """The snapshot with acceptance length and rate unknown where nothing is drafted."""
    plain, speculation, engine = _plain_modes(snapshot), snapshot.speculation, snapshot.engine
    rows = tuple(replace(r, acceptance_length=NOT_DRAFTED) if r.mode in plain else r for r in speculation.by_mode)
    if speculation.mode in plain:
        engine = replace(engine, acceptance_length=NOT_DRAFTED, acceptance_rate=NOT_DRAFTED)
    return replace(snapshot, speculation=replace(speculation, by_mode=rows), engine=engine)


def _fresh(reading: Reading) -> float | None:
    """The value for a chart: an old gauge is a gap, not a flat line."""
    if reading.age is not None and reading.age > STALE_AFTER_S:
        return None
    return reading.value


def point_of(snapshot: Snapshot) -> HistoryPoint:
    """The chart's point for a snapshot, for the seconds after the daemon's own history page."""
    engine = snapshot.engine
    return HistoryPoint(
        at=snapshot.at,
        mode=snapshot.speculation.mode,
        tokens_per_second=_fresh(engine.tokens_per_second),
        acceptance_length=_fresh(engine.acceptance_length),
        running=_fresh(engine.running),
        queued=_fresh(engine.queued),
    )


def _other_daemon(a: Snapshot, b: Snapshot) -> bool:
    return (a.daemon.pid, a.daemon.started_at) != (b.daemon.pid, b.daemon.started_at)


class Store:
    """Holds the view; every method returns the new one. Times come from the caller, so that tests choose them."""

    def __init__(self, *, socket: str = "", read_only: bool = False, now: float = 0.0) -> None:
        self.view = View(socket=socket, read_only=read_only, now=now, link=Link(since=now))
        self._events: deque[Event] = deque(maxlen=MOST_EVENTS)
        self._points: deque[HistoryPoint] = deque(maxlen=MOST_POINTS)
        self._log: deque[LogLine] = deque(maxlen=MOST_LOG_LINES)
        self._last_key: tuple[str, float] = ("", -1e9)

    def _set(self, now: float, **changes: object) -> View:
        self.view = replace(self.view, now=now, **changes)  # type: ignore[arg-type]
        return self.view

    def tick(self, now: float) -> View:
        """Time went by: ages grow, notices end, an answered request that no snapshot will show is forgotten."""
        view = self.view
        notice = view.notice if view.notice and now - view.notice.at < NOTICE_S else None
        asking = view.asking
        if asking and asking.accepted and now - asking.at > NOTICE_S:
            asking = None
        return self._set(now, notice=notice, asking=asking)

    def apply(self, item: Snapshot | Event | LinkLost, now: float) -> View:
        if isinstance(item, Snapshot):
            return self._apply_snapshot(item, now)
        if isinstance(item, Event):
            return self._apply_event(item, now)
        link = self.view.link
        since = link.since if link.state is LinkState.LOST else now
        lost = Link(state=LinkState.LOST, since=since, reason=item.reason, remedy=item.remedy)
        return self._set(now, link=lost, asking=None)

    def _apply_snapshot(self, snapshot: Snapshot, now: float) -> View:
        before, snapshot = self.view.snapshot, without_idle_lengths(snapshot)
        if before and (before.server.run, before.daemon.pid) != (snapshot.server.run, snapshot.daemon.pid):
            self._log.clear()
        if self._events and snapshot.last_event_id < self._events[-1].id and before and _other_daemon(before, snapshot):
            self._events.clear()
        if not self._points or snapshot.at > self._points[-1].at:
            self._points.append(point_of(snapshot))
        link = self.view.link
        if link.state is not LinkState.UP:
            link = Link(state=LinkState.UP, since=now)
        return self._set(
            now,
            snapshot=snapshot,
            received=now,
            link=link,
            points=tuple(self._points),
            events=tuple(self._events),
            log=tuple(self._log),
            asking=self._still_asking(snapshot),
        )

    def _still_asking(self, snapshot: Snapshot) -> Asking | None:
        """The snapshot takes over as soon as it knows the flip; before that the request is shown from here."""
        asking, speculation = self.view.asking, snapshot.speculation
        if asking is None or asking.epoch is None:
            return asking
        known = max(speculation.epoch, *(f.epoch for f in (speculation.pending, speculation.last_flip) if f), 0)
        return None if known >= asking.epoch else asking

    def _apply_event(self, event: Event, now: float) -> View:
        if self._events and event.id <= self._events[-1].id:
            return self._set(now)
        self._events.append(event)
        asking = self.view.asking
        if asking and event.flip and event.flip.epoch == asking.epoch and event.flip.state.is_final:
            asking = None
        return self._set(now, events=tuple(self._events), asking=asking)

    def prefill(self, points: Sequence[HistoryPoint], now: float) -> View:
        """The daemon's history page, put before what the stream brought meanwhile."""
        first = self._points[0].at if self._points else float("inf")
        plain = _plain_modes(self.view.snapshot) if self.view.snapshot else frozenset()
        older = (p for p in points if p.at < first)
        merged = [replace(p, acceptance_length=None) if p.mode in plain else p for p in older] + list(self._points)
        self._points = deque(merged, maxlen=MOST_POINTS)
        return self._set(now, points=tuple(self._points))

    def add_log(self, lines: Iterable[LogLine], now: float) -> View:
        self._log.extend(lines)
        return self._set(now, log=tuple(self._log))

    def ask(self, mode: str, now: float) -> str | None:
        """Record that the operator wants `mode`. Returns None when it may be sent, "" to ignore, else the refusal."""
        key, at = self._last_key
        self._last_key = (mode, now)
        if key == mode and now - at < DEBOUNCE_S:
            return ""
        view = self.view
        why = view.mode_refusal(mode)
        if why is None and view.asking and not view.asking.accepted:
            why = f"the request for {view.asking.mode} has no answer yet"
        if why is None and view.snapshot and view.snapshot.speculation.mode == mode and not view.pending:
            self.note(f"already in {mode}", now, bad=False)
            return ""
        if why is not None:
            self.note(f"{mode}: {why}", now)
            return why
        self._set(now, asking=Asking(mode=mode, at=now), notice=None)
        return None

    def accepted(self, mode: str, epoch: int | None, now: float) -> View:
        asking = self.view.asking
        if asking is None or asking.mode != mode:
            return self._set(now)
        self._set(now, asking=replace(asking, epoch=epoch, accepted=True))
        snapshot = self.view.snapshot
        return self._set(now, asking=self._still_asking(snapshot) if snapshot else self.view.asking)

    def refused(self, mode: str, why: str, now: float) -> View:
        self._set(now, asking=None)
        return self.note(f"{mode}: {why}", now)

    def note(self, text: str, now: float, *, bad: bool = True) -> View:
        return self._set(now, notice=Notice(text=text, at=now, bad=bad))

    def next_window(self, now: float) -> View:
        index = WINDOWS_S.index(self.view.window_s)
        return self._set(now, window_s=WINDOWS_S[(index + 1) % len(WINDOWS_S)])
