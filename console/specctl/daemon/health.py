"""Why a serving server is DEGRADED. Pure: readings in, the worst reason out."""

from __future__ import annotations

from dataclasses import dataclass

from specctl.core.states import PatchStatus

STALE_AFTER_S = 5.0
SILENT_AT_LEAST_S = 15.0  # three polls of /server_info: fewer say nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """died: which process of the server is dead, and how. frozen_for: seconds that requests run and no counter moves.

    metrics_age: seconds since the last good page. silent_for: seconds without a sign of the schedulers, neither an
    answer nor a counter that moved. It finds those that hang while nothing runs: what they are sent then is counted
    nowhere.
    """

    died: str | None = None
    patch: PatchStatus = PatchStatus.UNKNOWN
    patch_reason: str | None = None
    patch_expected: bool = True
    ready_failures: int = 0
    metrics_age: float = 0.0
    metrics_error: str | None = None
    frozen_for: float = 0.0
    silent_for: float = 0.0
    wedged_after_s: float = 20.0

    def problem(self) -> tuple[str, str | None] | None:
        """(reason, remedy) of the worst thing that is wrong, or None."""
        if self.died is not None:
            return f"broken: {self.died}", "It ends by itself; `specctl restart` does not wait for that"
        if self.frozen_for >= self.wedged_after_s:
            return (
                f"wedged: requests run but no counter has moved for {self.frozen_for:.0f} s",
                "Look at `specctl logs`, then `specctl restart`",
            )
        if self.silent_for >= max(self.wedged_after_s, SILENT_AT_LEAST_S):
            return (
                f"wedged: the schedulers have not answered for {self.silent_for:.0f} s",
                "Look at `specctl logs`, then `specctl restart`",
            )
        if self.ready_failures >= 2:
            return "unhealthy: /ready does not answer 200", "Look at `specctl logs`"
        if self.metrics_age >= STALE_AFTER_S:
            why = f": {self.metrics_error}" if self.metrics_error else ""
            return f"metrics stale: the last page is {self.metrics_age:.0f} s old{why}", None
        if self.patch_expected and self.patch is PatchStatus.REFUSED:
            return f"patch refused: {self.patch_reason or 'no reason given'}", "See `specctl engine check`"
        if self.patch_expected and self.patch is PatchStatus.ABSENT:
            return (
                f"patch absent: {self.patch_reason or 'the server does not read it back'}",
                "See `specctl engine check`",
            )
        return None
