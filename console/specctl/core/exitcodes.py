"""Exit codes of every specctl command."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    NO_DAEMON = 3
    REFUSED = 4
    TIMEOUT = 5
    SERVER_FAILED = 6
    NOT_CONFIRMED = 7
    INTERRUPTED = 130
    TERMINATED = 143
