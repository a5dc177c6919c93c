"""One HTTP/1.1 exchange over a Unix socket, for a peer that is always the local daemon.

Written out because importing `http.client` (it brings ssl and email) takes half of the time that a whole
`specctl status` may take. Every exchange is a connection of its own (`Connection: close`): nothing is pooled or reused.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from types import TracebackType
from typing import IO, NamedTuple

MAX_LINE = 64 * 1024
MAX_HEADERS = 100
BLOCK = 64 * 1024


class WireError(Exception):
    """The peer closed early, or what it sent is not HTTP."""


class Reply(NamedTuple):
    status: int
    content_type: str
    body: bytes


class Connection:
    """A request that was sent, and its reply as it comes. Use as a context manager.

    `timeout` bounds each single wait for bytes; it can be changed by `set_timeout` while reading.
    Raises FileNotFoundError, ConnectionError and TimeoutError of the socket, and WireError.
    """

    def __init__(self, path: str, timeout: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._file: IO[bytes] | None = None
        try:
            self._socket.settimeout(timeout)
            self._socket.connect(path)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
        self._socket.close()

    def set_timeout(self, timeout: float) -> None:
        self._socket.settimeout(timeout)

    def send(self, method: str, target: str, body: bytes | None, headers: dict[str, str]) -> None:
        lines = [f"{method} {target} HTTP/1.1", "Host: specctl", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode("ascii") + (body or b""))

    def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers (names in lower case)."""
        # Unbuffered reads below go through this file: it must be the only reader of the socket.
        self._file = self._socket.makefile("rb")
        parts = self._line().split(None, 2)
        if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
            raise WireError("the reply does not start with an HTTP status")
        headers: dict[str, str] = {}
        for _ in range(MAX_HEADERS):
            line = self._line()
            if not line:
                return int(parts[1]), headers
            name, colon, value = line.partition(b":")
            if not colon:
                raise WireError("a header line has no colon")
            headers[name.strip().lower().decode("latin-1")] = value.strip().decode("latin-1")
        raise WireError(f"more than {MAX_HEADERS} header lines")

    def blocks(self, headers: dict[str, str]) -> Iterator[bytes]:
        """The body in pieces as they arrive; ends where the reply ends, raises WireError where it is cut off."""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            yield from self._chunks()
        elif "content-length" in headers:
            yield from self._exactly(_size(headers["content-length"], 10))
        else:
            while block := self._read1(BLOCK):
                yield block

    def _chunks(self) -> Iterator[bytes]:
        while size := _size(self._line().partition(b";")[0].decode("latin-1"), 16):
            yield from self._exactly(size)
            if self._line():
                raise WireError("a chunk is longer than it says")
        while self._line():
            pass

    def _exactly(self, size: int) -> Iterator[bytes]:
        while size:
            block = self._read1(min(size, BLOCK))
            if not block:
                raise WireError("the reply was cut off")
            size -= len(block)
            yield block

    def _line(self) -> bytes:
        assert self._file is not None
        line = self._file.readline(MAX_LINE + 1)
        if not line.endswith(b"\n"):
            raise WireError("the reply was cut off" if len(line) <= MAX_LINE else "a header line is too long")
        return line.rstrip(b"\r\n")

    def _read1(self, size: int) -> bytes:
        assert self._file is not None
        return self._file.read1(size)  # type: ignore[attr-defined, no-any-return]


def exchange(path: str, method: str, target: str, body: bytes | None, timeout: float) -> Reply:
    """Send one request and read the whole reply within `timeout` seconds in all."""
    deadline = time.monotonic() + timeout
    with Connection(path, timeout) as connection:
        connection.send(method, target, body, {})
        status, headers = connection.head()
        blocks = []
        for block in connection.blocks(headers):
            blocks.append(block)
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            connection.set_timeout(left)
    return Reply(status, headers.get("content-type", ""), b"".join(blocks))


def _size(text: str, base: int) -> int:
    try:
        size = int(text, base)
    except ValueError:
        size = -1
    if size < 0:
        raise WireError(f"{text[:40]!r} is not a length")
    return size
