"""The terminal as a resource: proving that there is one, and giving it back whatever happens."""

from __future__ import annotations

import os
import sys
import termios
import threading
from collections.abc import Sequence
from typing import TextIO

# Mouse, paste, focus, resize and keyboard reports off; cursor and main screen back.
RESTORE = (
    "\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l\x1b[?2004l\x1b[?1004l\x1b[?2048l"
    "\x1b[<u\x1b[?7h\x1b[0m\x1b[?25h\x1b[?1049l"
)
PATIENCE_S = 0.7


def missing_tty(streams: Sequence[tuple[str, TextIO | None]] | None = None) -> str | None:
    """The name of the first standard stream that is no terminal, or None."""
    for name, stream in streams or (("stdin", sys.stdin), ("stdout", sys.stdout), ("stderr", sys.stderr)):
        try:
            if stream is None or not stream.isatty():
                return name
        except ValueError:
            return name
    return None


def drop_unwritable() -> None:
    """With the terminal gone, unwritten output must not turn the exit code into Python's 120."""
    for stream, number in ((sys.__stdout__, 1), (sys.__stderr__, 2)):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            sink = os.open(os.devnull, os.O_WRONLY)
            os.dup2(sink, number)
            os.close(sink)


class Keeper:
    """Remembers the terminal's settings, and ends the process with them restored if it does not end by itself."""

    def __init__(self) -> None:
        self._attributes: list[object] | None = None
        self._done = threading.Event()
        self._started = False
        try:
            self._attributes = termios.tcgetattr(sys.stdin.fileno())
        except (OSError, ValueError, termios.error):
            self._attributes = None

    def expect_end(self, code: int, after_s: float = PATIENCE_S) -> None:
        """From now on the process has `after_s` seconds to leave `run`; then it is ended with `code`."""
        if self._started:
            return
        self._started = True
        threading.Thread(target=self._wait, args=(code, after_s), name="specctl-exit", daemon=True).start()

    def _wait(self, code: int, after_s: float) -> None:
        if self._done.wait(after_s):
            return
        self.restore()
        os._exit(code)

    def restore(self) -> None:
        """Best effort: the terminal may be gone already."""
        try:
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, RESTORE.encode())
        except (OSError, ValueError):
            return
        if self._attributes is not None:
            try:
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self._attributes)  # type: ignore[arg-type]
            except (OSError, ValueError, termios.error):
                return

    def ended(self) -> None:
        self._done.set()
