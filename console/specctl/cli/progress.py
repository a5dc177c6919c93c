"""Start and stop of a server as plain lines: each change once, nothing that needs a terminal."""

from __future__ import annotations

from specctl.cli.numbers import duration
from specctl.cli.output import say
from specctl.core.snapshot import ServerInfo, Snapshot, StartStep
from specctl.core.states import ServerState, StepStatus


class Progress:
    """Give it every snapshot; it says on standard error what is new in it. before: what the operator knows already."""

    def __init__(self, before: ServerInfo | None = None) -> None:
        self._state: ServerState | None = None
        self._run: int | None = None
        self._steps: dict[str, StepStatus] = {}
        self._blockers: set[str] = set()
        if before is not None:
            self._state, self._run = before.state, before.run
            self._steps = {step.name: step.status for step in before.steps}

    def __call__(self, snapshot: Snapshot) -> None:
        for line in self.lines(snapshot):
            say(line)

    def lines(self, snapshot: Snapshot) -> list[str]:
        server = snapshot.server
        new = []
        if server.run != self._run:
            self._run = server.run
            self._steps.clear()
        if server.state is not self._state:
            self._state = server.state
            new.append(f"{server.state}{_reason(server.reason)}")
        new += [line for step in server.steps if (line := self._step(step))]
        new += [f"  waits for {blocker}" for blocker in server.blockers if _who(blocker) not in self._blockers]
        self._blockers |= {_who(blocker) for blocker in server.blockers}
        return new

    def _step(self, step: StartStep) -> str | None:
        if self._steps.get(step.name) is step.status or step.status is StepStatus.WAITING:
            return None
        self._steps[step.name] = step.status
        detail = f"  {step.detail}" if step.detail else ""
        if step.status is StepStatus.RUNNING:
            usual = f"  (usually {duration(step.usual_s)})" if step.usual_s is not None else ""
            return f"  {step.name:<18}running{usual}{detail}"
        took = "" if step.seconds is None else f"  {step.seconds:.1f} s"
        return f"  {step.name:<18}{step.status}{took}{detail}"


def _who(blocker: str) -> str:
    """Whom it names: the rest of the text, its age, changes each second."""
    return blocker.partition(",")[0]


def _reason(reason: str | None) -> str:
    return f": {reason}" if reason else ""
