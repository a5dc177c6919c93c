"""Server-sent events: bytes in, messages out. Source: WHATWG HTML, section "Interpreting an event stream"."""

from __future__ import annotations

from typing import NamedTuple

MAX_MESSAGE = 8 * 1024 * 1024


class Message(NamedTuple):
    event: str
    data: bytes


class Parser:
    """Feed blocks of any size; `last_id` is the id to resume after.

    Raises ValueError when one message grows above MAX_MESSAGE: a stream that never ends a message is broken.
    """

    def __init__(self, last_id: str = "") -> None:
        self.last_id = last_id
        self._data: list[bytes] = []
        self.restart()

    def restart(self) -> None:
        """A new connection: what the old one left unfinished is dropped, `last_id` stays."""
        self._rest, self._event, self._data, self._size = b"", "", [], 0

    def feed(self, block: bytes) -> list[Message]:
        # A \r at the end may be half of \r\n: it stays in the rest until the next byte is there.
        text = self._rest + block
        keep = b"\r" if text.endswith(b"\r") else b""
        text = text[: len(text) - len(keep)].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, last = text.split(b"\n")
        self._rest = last + keep
        if self._size + len(self._rest) > MAX_MESSAGE:
            raise ValueError(f"a message of the stream is above {MAX_MESSAGE} bytes")
        return [message for line in lines if (message := self._line(line))]

    def _line(self, line: bytes) -> Message | None:
        if not line:
            return self._finish()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"event":
                self._event = value.decode("utf-8", "replace")
            case b"data":
                self._data.append(value)
                self._size += len(value)
            case b"id" if b"\0" not in value:
                self.last_id = value.decode("utf-8", "replace")
        return None

    def _finish(self) -> Message | None:
        message = Message(self._event or "message", b"\n".join(self._data)) if self._data else None
        self._event, self._data, self._size = "", [], 0
        return message
