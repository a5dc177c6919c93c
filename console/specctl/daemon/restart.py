"""When to start a server again: policy, exponential back-off with jitter, and a budget. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class RestartMode(StrEnum):
    NEVER = "never"
    ON_FAILURE = "on-failure"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """base_s doubles with each restart up to cap_s; jitter is the largest share added; times in seconds."""

    mode: RestartMode = RestartMode.ON_FAILURE
    max_restarts: int = 5
    base_s: float = 2.0
    cap_s: float = 300.0
    jitter: float = 0.2
    stable_s: float = 600.0

    def wants(self, *, failed: bool) -> bool:
        return self.mode is RestartMode.ALWAYS or (failed and self.mode is RestartMode.ON_FAILURE)


@dataclass(slots=True)
class RestartBudget:
    """Counts restarts since the operator's start; `stable_s` of uptime gives the whole budget back."""

    policy: RestartPolicy
    used: int = 0
    total: int = 0
    rand: Callable[[], float] = random.random

    def refill(self, uptime_s: float) -> None:
        if uptime_s >= self.policy.stable_s:
            self.used = 0

    def take(self) -> float | None:
        """Seconds to wait before the next start, or None when the budget is spent."""
        if self.used >= self.policy.max_restarts:
            return None
        delay = min(self.policy.cap_s, self.policy.base_s * 2.0**self.used)
        self.used += 1
        self.total += 1
        return min(self.policy.cap_s, delay * (1.0 + self.policy.jitter * self.rand()))
