"""Start-up steps, read from SGLang's own log lines. Pure: lines and times come in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from specctl.core.modes import Mode
from specctl.core.snapshot import StartStep
from specctl.core.states import StepStatus

LAUNCHING, TARGET, DRAFT, KV, GRAPHS, READY = (
    "launching",
    "loading target",
    "loading draft",
    "KV cache",
    "graphs",
    "ready",
)

# "[2026-11-29 17:25:02 DP0 TP0] message": the rank part is there with more than one rank; only rank 0 is followed.
_PREFIX = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?P<ranks>(?: [A-Z_]+\d+)*)\] (?P<text>.*)")
_OTHER_RANK = re.compile(r" [A-Z_]+[1-9]\d*")
_SHARDS = re.compile(r"shards:\s+(?P<percent>\d+)%")
_CAPTURE_BEGIN = re.compile(r"Capture (?P<what>[\w ]+?) (?:CUDA|cuda|CPU|NPU|XPU) graph begin")
_CAPTURE_BAR = re.compile(r"Capturing batches.*?:?\s+(?P<percent>\d+)%")
_STATE = re.compile(r"specctl: built (?P<what>[\w-]+)")
_CRASH = re.compile(r"Subprocess (?P<name>\w+) \(pid=(?P<pid>\d+)\) crashed with exit code (?P<code>-?\d+)")
_ERROR = re.compile(r"^(?:\w+\.)*(?P<kind>\w*(?:Error|Exception|Interrupt|Refused))\b:? ?(?P<text>.*)")


def _message(line: str) -> str | None:
    """The text of a line without its prefix, or None when another rank than 0 wrote it."""
    found = _PREFIX.match(line)
    if not found:
        return line
    return None if _OTHER_RANK.search(found["ranks"]) else found["text"]


@dataclass(slots=True)
class StartSteps:
    """Feed it log lines; `steps` is what to show. Steps may be skipped (no draft, no graphs), never go back."""

    started_at: float
    usual: dict[str, float] = field(default_factory=dict)
    names: tuple[str, ...] = (LAUNCHING, TARGET, DRAFT, KV, GRAPHS, READY)
    _now: int = 0
    _since: float = 0.0
    _seconds: dict[str, float] = field(default_factory=dict)
    _fraction: float | None = None
    _detail: str = ""
    _loads: int = 0
    _last_number: int = 0
    _failed: bool = False

    def __post_init__(self) -> None:
        self._since = self.started_at

    @classmethod
    def of(cls, started_at: float, modes: tuple[Mode, ...], usual: dict[str, float]) -> StartSteps:
        names: tuple[str, ...] = (LAUNCHING, TARGET, DRAFT, KV, GRAPHS, READY)
        if not modes:
            names = (LAUNCHING, TARGET, KV, GRAPHS, READY)
        return cls(started_at=started_at, usual=usual, names=names)

    @property
    def current(self) -> str:
        return self.names[self._now]

    @property
    def seconds(self) -> dict[str, float]:
        """How long each finished step took."""
        return dict(self._seconds)

    def feed(self, number: int, line: str, now: float) -> bool:
        """Takes log line `number`; True when what is shown has changed. An unfinished line may come several times."""
        fresh, self._last_number = number > self._last_number, max(number, self._last_number)
        # A progress bar redraws itself with carriage returns; the last one counts.
        text = _message(line.rstrip("\r").rpartition("\r")[2])
        if text is None:
            return False
        before = (self._now, self._fraction, self._detail)
        self._read(text, now, fresh=fresh)
        return (self._now, self._fraction, self._detail) != before

    def _read(self, text: str, now: float, *, fresh: bool) -> None:
        if text.startswith("Load weight begin"):
            self._loads += fresh
            self._enter(TARGET if self._loads <= 1 else DRAFT, now)
        elif (found := _SHARDS.search(text)) and self.current in (TARGET, DRAFT):
            self._fraction = int(found["percent"]) / 100
        elif text.startswith("KV Cache is allocated"):
            self._enter(KV, now)
        elif found := _CAPTURE_BEGIN.match(text):
            self._enter(GRAPHS, now, detail=found["what"])
        elif (found := _CAPTURE_BAR.search(text)) and self.current == GRAPHS:
            self._fraction = int(found["percent"]) / 100
        elif found := _STATE.match(text):
            self._enter(GRAPHS, now, detail=found["what"])

    def _enter(self, name: str, now: float, detail: str = "") -> None:
        if name not in self.names:
            return
        index = self.names.index(name)
        if index < self._now:
            return
        if index > self._now:
            self._seconds[self.current] = max(0.0, now - self._since)
            self._now, self._since, self._fraction = index, now, None
        if detail != self._detail:
            self._detail, self._fraction = detail, None

    def finish(self, now: float) -> None:
        """The server answers that it is ready."""
        self._enter(self.names[-1], now)
        self._seconds.setdefault(self.names[-1], 0.0)

    def fail(self, now: float) -> None:
        self._seconds[self.current] = max(0.0, now - self._since)
        self._failed = True

    def steps(self, now: float) -> tuple[StartStep, ...]:
        shown = []
        for index, name in enumerate(self.names):
            step = StartStep(name=name, usual_s=self.usual.get(name))
            if index < self._now or (index == self._now and name == READY and name in self._seconds):
                step = replace(step, status=StepStatus.DONE, seconds=self._seconds.get(name))
            elif index == self._now:
                step = replace(
                    step,
                    status=StepStatus.FAILED if self._failed else StepStatus.RUNNING,
                    seconds=self._seconds.get(name, max(0.0, now - self._since)),
                    fraction=self._fraction,
                    detail=self._detail,
                )
            shown.append(step)
        return tuple(shown)


def explain_death(lines: Iterable[str]) -> str | None:
    """Which process of the server died first, by SGLang's own account: it ends itself with SIGKILL after that."""
    for line in lines:
        # The plain search first: a server may write thousands of lines a second.
        if "Subprocess " in line and (found := _CRASH.search(line)):
            code = int(found["code"])
            how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
            guess = " (out of memory?)" if code == -9 else ""
            return f"{found['name']} (pid {found['pid']}) {how}{guess}"
    return None


def explain_exit(lines: list[str]) -> str | None:
    """The last line that names an error, for the reason of a FAILED; None when there is none."""
    for line in reversed(lines):
        text = (_message(line) or "").strip()
        if found := _ERROR.match(text):
            return f"{found['kind']}: {found['text']}"[:300] if found["text"] else found["kind"]
    return None
