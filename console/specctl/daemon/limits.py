"""A time limit for work that holds the interpreter, such as a regular expression that backtracks for ever."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TookTooLong(Exception):
    """The limit of `time_limit` was reached."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TookTooLong inside the block after `seconds`. In the main thread only; elsewhere there is no limit.

    Works by SIGALRM: Python's matcher looks for signals while it backtracks, and nothing else can reach it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_armed = True

    def ring(_number: int, _frame: FrameType | None) -> None:
        if is_armed:
            raise TookTooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        is_armed = False
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
