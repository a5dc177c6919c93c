"""A process in a real pseudo-terminal, and a terminal emulator that shows what it drew."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence

import pyte

# The emulator knows no keyboard protocol and would print the letters of its sequences.
_UNKNOWN = re.compile(rb"\x1b\[[<>=][0-9;]*[a-zA-Z]|\x1b\[\?[0-9;]*\$p")
WAIT_S = 60.0


class PtyProcess:
    def __init__(self, argv: Sequence[str], env: Mapping[str, str], size: tuple[int, int] = (80, 24)) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.output = b""
        self.screen = pyte.Screen(*size)
        self._stream = pyte.ByteStream(self.screen)
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            list(argv),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=dict(env),
            start_new_session=True,
            preexec_fn=_own_tty,
        )

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    def pump(self, seconds: float) -> bytes:
        """Read for so long, or until the process closed its end."""
        end = time.monotonic() + seconds
        got = b""
        while (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select([self.master], [], [], min(left, 0.05))
            if not ready:
                continue
            try:
                block = os.read(self.master, 65536)
            except OSError:
                break
            got += block
            self._stream.feed(_UNKNOWN.sub(b"", block))
        self.output += got
        return got

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < end, self.text
            assert self.process.poll() is None or condition(), self.text
            self.pump(0.05)

    def send(self, data: bytes) -> None:
        os.write(self.master, data)

    def wait(self) -> int:
        """The exit code; output is read meanwhile, for a full pty would block the process."""
        end = time.monotonic() + WAIT_S
        while self.process.poll() is None:
            assert time.monotonic() < end, self.text
            self.pump(0.02)
        self.pump(0.05)
        return self.process.returncode

    def restored(self) -> list[str]:
        """What the process left switched on in the terminal; empty when it gave it back as it was."""
        left = []
        for name, on, off in (
            ("alternate screen", b"\x1b[?1049h", b"\x1b[?1049l"),
            ("hidden cursor", b"\x1b[?25l", b"\x1b[?25h"),
            ("mouse", b"\x1b[?1003h", b"\x1b[?1003l"),
            ("mouse buttons", b"\x1b[?1000h", b"\x1b[?1000l"),
            ("bracketed paste", b"\x1b[?2004h", b"\x1b[?2004l"),
            ("focus reports", b"\x1b[?1004h", b"\x1b[?1004l"),
        ):
            if self.output.rfind(on) > self.output.rfind(off):
                left.append(name)
        if self.output.count(b"\x1b[<u") < self.output.count(b"\x1b[>"):
            left.append("keyboard protocol")
        if termios.tcgetattr(self.slave)[:4] != self.before[:4]:
            left.append("line settings")
        return left

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for fd in (self.master, self.slave):
            try:
                os.close(fd)
            except OSError:
                continue


def _own_tty() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
