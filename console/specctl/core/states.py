"""States of the supervised server, of a flip and of a start-up step."""

from __future__ import annotations

from enum import StrEnum


class ServerState(StrEnum):
    STOPPED = "STOPPED"
    PREFLIGHT = "PREFLIGHT"
    STARTING = "STARTING"
    READY = "READY"
    DEGRADED = "DEGRADED"
    DRAINING = "DRAINING"
    STOPPING = "STOPPING"
    BACKOFF = "BACKOFF"
    FAILED = "FAILED"

    @property
    def is_serving(self) -> bool:
        return self in (ServerState.READY, ServerState.DEGRADED)

    @property
    def is_resting(self) -> bool:
        """No process of the server exists and none is about to."""
        return self in (ServerState.STOPPED, ServerState.FAILED)


class StepStatus(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class FlipState(StrEnum):
    """requested -> acknowledged -> confirmed; or refused; or unconfirmed when no read-back came in time.

    `acknowledged` on an idle server means: every rank holds the command and its next decode round obeys it.
    """

    REQUESTED = "requested"
    ACKNOWLEDGED = "acknowledged"
    CONFIRMED = "confirmed"
    REFUSED = "refused"
    UNCONFIRMED = "unconfirmed"

    @property
    def is_final(self) -> bool:
        return self in (FlipState.CONFIRMED, FlipState.REFUSED, FlipState.UNCONFIRMED)


class FlipCause(StrEnum):
    OPERATOR = "operator"
    POLICY = "policy"
    GUARD = "guard"
    EXPERIMENT = "experiment"
    BOOT = "boot"


class PatchStatus(StrEnum):
    """What is known of the engine patch in the running server."""

    UNKNOWN = "unknown"
    ACTIVE = "active"
    ABSENT = "absent"
    REFUSED = "refused"
