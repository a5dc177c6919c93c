"""Commands, the pending flip and the read-back of one scheduler process.

Every rank gets the same commands in the same order with SGLang's own broadcast, and every rank takes a pending command at
the top of its next decode round, so no rank ever decides by itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specctl_engine import PATCH_VERSION
from specctl_engine.modes import BOOT_CAUSE, CAUSES, EngineMode

# The read-back is sent on as JSON and msgpack, and neither carries a larger whole number exactly.
MAX_EPOCH = 2**53
KEYS = ("specctl_mode", "specctl_epoch", "specctl_cause")


class CommandRefusedError(Exception):
    """Why a command was not taken. A refused command changes nothing but the `refusal` of the read-back."""


@dataclass(frozen=True, slots=True)
class Command:
    mode: EngineMode
    epoch: int
    cause: int
    received: float


def is_command(request: Mapping[str, Any]) -> bool:
    return any(str(key).startswith("specctl_") for key in request)


def _whole(request: Mapping[str, Any], key: str) -> int:
    value = request[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
        raise CommandRefusedError(f"{key} {value!r} is not a whole number")
    return int(value)


class FlipControl:
    """State of the flip in this process. Not thread-safe: the scheduler's loop is the only caller."""

    def __init__(self, modes: Sequence[EngineMode], boot: EngineMode) -> None:
        self.modes = tuple(modes)
        self.boot = boot
        self.active = boot
        self.epoch = 0
        self.active_epoch = 0
        self.cause = BOOT_CAUSE
        self.flips = 0
        self.engine_ms: float | None = None
        self.refusal: dict[str, Any] | None = None
        self._pending: Command | None = None
        self._launching: Command | None = None

    # ------------------------------------------------------------------ commands

    def command(self, request: Mapping[str, Any]) -> bool:
        """Take a command on, whole, or refuse it whole. False = refused; `refusal` then says why."""
        try:
            command = self._parse(request)
        except (CommandRefusedError, OverflowError, ValueError) as why:
            epoch = request.get("specctl_epoch")
            sendable = isinstance(epoch, int) and abs(epoch) <= MAX_EPOCH
            self.refusal = {"epoch": epoch if sendable else None, "reason": str(why)}
            return False
        self.epoch = command.epoch
        if command.mode is self.active:
            # Nothing to change: whatever was pending is taken back, and the live mode answers for this epoch.
            self._pending = None
            self.active_epoch, self.cause = command.epoch, command.cause
            self.engine_ms = 0.0
        else:
            self._pending = command
        return True

    def _parse(self, request: Mapping[str, Any]) -> Command:
        missing = [key for key in KEYS if key not in request]
        if missing:
            raise CommandRefusedError(f"{', '.join(missing)} missing: a command is taken whole or not at all")
        foreign = sorted(str(key) for key in request if key not in KEYS)
        if foreign:
            raise CommandRefusedError(f"{', '.join(foreign)} cannot be part of a mode command")
        number, epoch, cause = (_whole(request, key) for key in KEYS)
        if not 0 <= number < len(self.modes):
            raise CommandRefusedError(f"specctl_mode {number} is not one of 0 to {len(self.modes) - 1}")
        if epoch > MAX_EPOCH:
            raise CommandRefusedError(f"specctl_epoch {epoch:.3g} is above {MAX_EPOCH}")
        if epoch <= self.epoch:
            raise CommandRefusedError(f"specctl_epoch {epoch} is not newer than {self.epoch}")
        if not 0 <= cause < len(CAUSES):
            raise CommandRefusedError(f"specctl_cause {cause} is not one of 0 to {len(CAUSES) - 1}")
        return Command(self.modes[number], epoch, cause, time.perf_counter())

    # ------------------------------------------------------------------ rounds

    def due(self) -> EngineMode | None:
        """Called at the top of a decode round: the mode to change to before it, or None."""
        if self._pending is None:
            return None
        self._launching, self._pending = self._pending, None
        return self._launching.mode

    def applied(self) -> None:
        """The mode that `due` named is in place; this round is the first in it."""
        command = self._launching
        assert command is not None
        self._launching = None
        self.active, self.active_epoch, self.cause = command.mode, command.epoch, command.cause
        self.engine_ms = (time.perf_counter() - command.received) * 1e3
        self.flips += 1

    # ------------------------------------------------------------------ read-back

    def report(self) -> dict[str, Any]:
        """The part of the read-back that this object knows; see the contract in the design."""
        return {
            "patch": PATCH_VERSION,
            "mode": self.active.name,
            "mode_id": self.active.id,
            "epoch": self.epoch,
            "active_epoch": self.active_epoch,
            "pending": None if self._pending is None else self._pending.mode.name,
            "cause": CAUSES[self.cause],
            "flips": self.flips,
            "refusal": self.refusal,
            "engine_ms": None if self.engine_ms is None else round(self.engine_ms, 3),
        }
