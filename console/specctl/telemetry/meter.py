"""MetricsPages in, EngineNumbers out: the windows behind every live number of the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from specctl.core.modes import Mode
from specctl.core.snapshot import EngineNumbers, ModeNumbers, Reading
from specctl.telemetry.pages import ITL, KV_USAGE, QUEUED, RUNNING, TOKENS, TTFT, MetricsPage, ModeCounters
from specctl.telemetry.rates import WINDOW_S, CounterWindow, HistogramWindow

_COMMITTED = "specctl_committed_tokens_total / specctl_request_rounds_total"
_NOTHING_DRAFTED = "off drafts nothing: one token a round"


@dataclass(slots=True)
class _ModeWindows:
    """is_live: what the newest page says, or True where pages do not tell."""

    committed: CounterWindow = field(default_factory=CounterWindow)
    request_rounds: CounterWindow = field(default_factory=CounterWindow)
    is_live: bool = True

    def tell_live(self, *, is_live: bool) -> None:
        """Call before the page's counters are added: a mode that comes back is measured from the page before."""
        if is_live and not self.is_live:
            self.committed.restart()
            self.request_rounds.restart()
        self.is_live = is_live

    def rate(self, *, idle: bool) -> float | None:
        """Tokens a second since the mode went live, at most over the window; None where it is not live or not used."""
        return self.committed.rate(idle=idle) if self.is_live and self.committed.delta else None


class EngineMeter:
    """Keeps the windows of one run. Feed it every page; ask it at any time."""

    def __init__(self, engine_version: str | None = None) -> None:
        self.page: MetricsPage | None = None
        self.engine_version = engine_version
        self._tokens = CounterWindow()
        self._progress = CounterWindow()
        self._ttft, self._itl = HistogramWindow(), HistogramWindow()
        self._modes: dict[str, _ModeWindows] = {}
        self._moved_at: float | None = None
        self.progressed_at = 0.0  # Unix seconds of the newest page in which a counter had moved

    def add(self, page: MetricsPage) -> None:
        before = self.page
        if before is None or page.progress != before.progress or not page.running:
            self._moved_at = page.at
        if before is not None and page.progress != before.progress:
            self.progressed_at = page.at
        self.page = page
        self._tokens.add(page.at, page.decode_tokens)
        self._ttft.add(page.at, page.ttft)
        self._itl.add(page.at, page.itl)
        for mode, counters in page.by_mode.items():
            windows = self._modes.setdefault(mode, _ModeWindows())
            if page.active_mode:
                windows.tell_live(is_live=mode in page.active_mode.values())
            windows.committed.add(page.at, counters.committed_tokens)
            windows.request_rounds.add(page.at, counters.request_rounds)

    def frozen_for(self) -> float:
        """Seconds up to the newest page in which requests ran and no counter moved."""
        if self.page is None or self._moved_at is None:
            return 0.0
        return self.page.at - self._moved_at

    @property
    def is_idle(self) -> bool:
        return self.page is not None and self.page.running == 0

    def numbers(self, now: float, active: Mode | None) -> EngineNumbers:
        """`active`: the live mode, whose acceptance is shown; None = not known, then all modes together."""
        page = self.page
        if page is None:
            return EngineNumbers(window_s=WINDOW_S)
        age = max(0.0, now - page.at)
        length = self._length(active, age)
        return EngineNumbers(
            window_s=WINDOW_S,
            tokens_per_second=self._tokens_per_second(age),
            acceptance_length=length,
            acceptance_rate=_rate_of(length, active),
            running=self._gauge(page.running, "requests", age, RUNNING),
            queued=self._gauge(page.queued, "requests", age, QUEUED),
            kv_usage=self._gauge(page.kv_usage, "", age, KV_USAGE),
            ttft_p50_ms=self._quantile(self._ttft, page.ttft, 0.5, age, TTFT),
            ttft_p99_ms=self._quantile(self._ttft, page.ttft, 0.99, age, TTFT),
            itl_p50_ms=self._quantile(self._itl, page.itl, 0.5, age, ITL),
            itl_p99_ms=self._quantile(self._itl, page.itl, 0.99, age, ITL),
        )

    def by_mode(self, now: float, modes: tuple[Mode, ...]) -> tuple[ModeNumbers, ...]:
        page = self.page
        if page is None:
            return tuple(ModeNumbers(mode=mode.name) for mode in modes)
        age = max(0.0, now - page.at)
        return tuple(self._mode_numbers(mode, page.by_mode.get(mode.name), age) for mode in modes)

    def _mode_numbers(self, mode: Mode, counters: ModeCounters | None, age: float) -> ModeNumbers:
        if counters is None:
            is_counted = self.page is not None and bool(self.page.by_mode or self.page.active_mode)
            return _unused(mode.name) if is_counted else ModeNumbers(mode=mode.name)
        length: float | None = None
        note: str | None = _NOTHING_DRAFTED if mode.is_off else "no round in this mode yet"
        if counters.request_rounds and not mode.is_off:
            length, note = counters.committed_tokens / counters.request_rounds, None
        windows = self._modes.get(mode.name)
        # A mode that is not in use has no rate; 0 would read as a mode that stands still.
        rate = windows.rate(idle=self.is_idle) if windows else None
        pace = None if rate is not None else f"no round in the last {WINDOW_S:.0f} s"
        return ModeNumbers(
            mode=mode.name,
            rounds=counters.rounds,
            request_rounds=counters.request_rounds,
            committed_tokens=counters.committed_tokens,
            drafted_tokens=counters.drafted_tokens,
            acceptance_length=Reading(value=length, unit="tokens", age=age, source=_COMMITTED, note=note),
            tokens_per_second=Reading(
                value=rate, unit="tok/s", age=age, source="specctl_committed_tokens_total", note=pace
            ),
        )

    def _tokens_per_second(self, age: float) -> Reading:
        page = self.page
        value = self._tokens.rate(idle=self.is_idle)
        note = None
        if page is not None and page.decode_tokens is None:
            note = self._not_exported(TOKENS)
        elif value is None:
            note = "two polls are needed"
        return Reading(value=value, unit="tok/s", age=age, source=f'{TOKENS}{{mode="decode"}}', note=note)

    def _length(self, active: Mode | None, age: float) -> Reading:
        if active is not None and active.is_off:
            return Reading(unit="tokens", source=_COMMITTED, note=_NOTHING_DRAFTED)
        names = [active.name] if active else list(self._modes)
        if self.page is not None and not self.page.by_mode:
            return Reading(unit="tokens", source=_COMMITTED, note="the engine patch exports no counters")
        committed = sum(self._modes[n].committed.delta or 0.0 for n in names if n in self._modes)
        rounds = sum(self._modes[n].request_rounds.delta or 0.0 for n in names if n in self._modes)
        if rounds <= 0:
            return Reading(unit="tokens", age=age, source=_COMMITTED, note=f"no round in the last {WINDOW_S:.0f} s")
        return Reading(value=committed / rounds, unit="tokens", age=age, source=_COMMITTED)

    def _gauge(self, value: float | None, unit: str, age: float, name: str) -> Reading:
        if value is None:
            return Reading(unit=unit, source=name, note=self._not_exported(name))
        return Reading(value=value, unit=unit, age=age, source=name)

    def _quantile(self, window: HistogramWindow, buckets: object, q: float, age: float, name: str) -> Reading:
        if not buckets:
            return Reading(unit="ms", source=name, note="nothing observed yet")
        value = window.quantile(q)
        if value is None:
            return Reading(unit="ms", age=age, source=name, note=f"nothing observed in the last {WINDOW_S:.0f} s")
        return Reading(value=value * 1000.0, unit="ms", age=age, source=name)

    def _not_exported(self, name: str) -> str:
        by = f"SGLang {self.engine_version}" if self.engine_version else "this SGLang"
        return f"{name} is not exported by {by}"


def _unused(mode: str) -> ModeNumbers:
    """The patch counts, and has not counted this mode yet."""
    return ModeNumbers(mode=mode, rounds=0, request_rounds=0, committed_tokens=0, drafted_tokens=0)


def _rate_of(length: Reading, active: Mode | None) -> Reading:
    """(L - 1) / num_steps; undefined in off, and where the mode is not known."""
    source = "(L - 1) / num_steps"
    if active is None or length.value is None:
        return Reading(source=source, note=length.note or "the mode is not known")
    value = min(1.0, max(0.0, (length.value - 1.0) / active.num_steps))
    return Reading(value=value, age=length.age, source=source)
