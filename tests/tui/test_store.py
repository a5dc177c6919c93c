"""The reducer: what snapshots, events and lost links make of the view."""

from __future__ import annotations

from dataclasses import replace

import scripted as s
from hypothesis import given
from hypothesis import strategies as st

from specctl.core.events import Event, EventKind, HistoryPoint, LogLine
from specctl.core.states import FlipState
from specctl.tui.store import DEBOUNCE_S, MOST_EVENTS, MOST_LOG_LINES, MOST_POINTS, LinkState, Store


def ready(now: float = 100.0) -> Store:
    store = Store(now=now)
    store.apply(s.snapshot("tree"), now)
    return store


def test_lost_link_keeps_the_last_snapshot_and_its_age_grows() -> None:
    store = ready()
    store.apply(s.LOST, 101.0)
    store.apply(s.LOST, 105.0)
    view = store.tick(110.0)
    assert view.link.state is LinkState.LOST
    assert view.link.since == 101.0, "the age counts from the first loss, not from the last try"
    assert view.snapshot is not None
    assert view.lag == 10.0


def test_a_stale_reading_is_a_gap_in_the_chart() -> None:
    store = Store(now=0.0)
    shot = s.snapshot("tree")
    old = replace(shot.engine, tokens_per_second=s.read(5.0, age=9.0), acceptance_length=s.read(None))
    view = store.apply(replace(shot, engine=old), 0.0)
    assert view.points[-1].tokens_per_second is None
    assert view.points[-1].acceptance_length is None


def test_history_goes_before_what_the_stream_brought_and_not_twice() -> None:
    store = ready()
    page = [HistoryPoint(at=s.NOW + n, tokens_per_second=1.0) for n in range(-3, 3)]
    view = store.prefill(page, 100.0)
    assert [p.at - s.NOW for p in view.points] == [-3, -2, -1, 0]
    again = store.prefill(page, 101.0)
    assert again.points == view.points


def test_repeated_events_are_dropped() -> None:
    store = ready()
    event = Event(id=7, at=s.NOW, kind=EventKind.NOTE, message="once")
    store.apply(event, 100.0)
    assert len(store.apply(event, 100.0).events) == 1


def test_a_new_daemon_starts_its_events_anew() -> None:
    store = ready()
    store.apply(Event(id=900, at=s.NOW, kind=EventKind.NOTE, message="old"), 100.0)
    shot = s.snapshot("tree", at=s.NOW + 9)
    store.apply(replace(shot, daemon=replace(shot.daemon, pid=1, started_at=s.NOW), last_event_id=3), 109.0)
    view = store.apply(Event(id=4, at=s.NOW, kind=EventKind.NOTE, message="new"), 109.0)
    assert [e.message for e in view.events] == ["new"]


def test_everything_is_bounded() -> None:
    store = ready()
    for n in range(MOST_EVENTS + 50):
        store.apply(Event(id=n + 10, at=s.NOW, kind=EventKind.NOTE, message=""), 100.0)
    store.add_log((LogLine(run=17, number=n, text="") for n in range(MOST_LOG_LINES * 3)), 100.0)
    store.prefill([HistoryPoint(at=float(n)) for n in range(MOST_POINTS * 2)], 100.0)
    view = store.view
    assert (len(view.events), len(view.log), len(view.points)) == (MOST_EVENTS, MOST_LOG_LINES, MOST_POINTS)


def test_the_request_is_shown_until_the_snapshot_knows_it() -> None:
    store = ready()
    assert store.ask("chain", 100.0) is None
    store.accepted("chain", 42, 100.1)
    store.apply(s.snapshot("tree", at=s.NOW + 1), 101.0)
    assert store.view.asking is not None
    store.apply(s.snapshot("tree", at=s.NOW + 2, speculation=s.speculation("tree", pending=s.PENDING)), 102.0)
    assert store.view.asking is None


def test_a_final_flip_event_ends_the_request() -> None:
    store = ready()
    store.ask("chain", 100.0)
    store.accepted("chain", 42, 100.1)
    flip = s.flip(42, "chain", "tree", state=FlipState.REFUSED, refusal="no")
    store.apply(Event(id=9, at=s.NOW, kind=EventKind.FLIP, message="", flip=flip), 100.2)
    assert store.view.asking is None


@given(st.lists(st.floats(0.001, DEBOUNCE_S - 0.001), min_size=1, max_size=30))
def test_a_bouncing_key_asks_once(gaps: list[float]) -> None:
    store, now, asked = ready(), 100.0, 0
    asked += store.ask("chain", now) is None
    for gap in gaps:
        now += gap
        asked += store.ask("chain", now) is None
    assert asked == 1


def test_a_refusal_leaves_the_mode_bar_free_again() -> None:
    store = ready()
    store.ask("chain", 100.0)
    store.refused("chain", "latched", 100.5)
    assert store.view.notice is not None
    assert store.ask("chain", 102.0) is None


def test_off_has_no_acceptance_length_whatever_the_daemon_says() -> None:
    store = Store(now=0.0)
    shot = s.snapshot("off")
    one = replace(shot.engine, acceptance_length=s.read(1.0), acceptance_rate=s.read(0.0))
    rows = tuple(replace(row, acceptance_length=s.read(1.0)) for row in shot.speculation.by_mode)
    store.apply(replace(shot, engine=one, speculation=replace(shot.speculation, by_mode=rows)), 0.0)
    view = store.prefill([HistoryPoint(at=s.NOW - 1, mode="off", acceptance_length=1.0)], 0.0)
    assert view.snapshot is not None
    assert not view.snapshot.engine.acceptance_length.is_known
    assert not view.snapshot.engine.acceptance_rate.is_known
    assert [row.acceptance_length.value for row in view.snapshot.speculation.by_mode] == [1.0, 1.0, None]
    assert [p.acceptance_length for p in view.points] == [None, None]
