"""The blocking client, for commands and scripts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from specctl.client import routes, sse, wire
from specctl.client.codec import ApiVersionError, decode, decode_message, error_of
from specctl.core.api import (
    Accepted,
    EventPage,
    HistoryPage,
    LogPage,
    ModeRequest,
    NoteRequest,
    StartRequest,
    StopRequest,
)
from specctl.core.errors import NoDaemon, SpecctlError, WaitTimeout
from specctl.core.events import Event
from specctl.core.snapshot import Snapshot

T = TypeVar("T")

TIMEOUT_S = 10.0
SILENCE_S = 40.0
"""The stream sends a comment every 15 s; this much silence means that its other end is gone."""


class Client:
    """One daemon, by the path of its socket. Holds no connection between calls; safe to share among threads.

    Every method raises NoDaemon (nobody listens there), WaitTimeout (no answer in `timeout` seconds), ApiVersionError
    (an answer of another version), or the daemon's own refusal as the class of `specctl.core.errors` that it sent.
    """

    def __init__(self, socket: Path, timeout: float = TIMEOUT_S) -> None:
        self.socket = socket
        self._timeout = timeout

    def snapshot(self) -> Snapshot:
        return self._call(routes.snapshot())

    def events(self, after: int | None = None, limit: int | None = None) -> EventPage:
        return self._call(routes.events(after, limit))

    def logs(
        self,
        run: int | None = None,
        start: int | None = None,
        tail: int | None = None,
        grep: str | None = None,
        limit: int | None = None,
    ) -> LogPage:
        return self._call(routes.logs(run, start, tail, grep, limit))

    def history(self, seconds: float | None = None) -> HistoryPage:
        return self._call(routes.history(seconds))

    def set_mode(self, request: ModeRequest) -> Accepted:
        return self._call(routes.set_mode(request))

    def start(self, request: StartRequest) -> Accepted:
        return self._call(routes.start(request))

    def stop(self, request: StopRequest) -> Accepted:
        return self._call(routes.stop(request))

    def restart(self, request: StopRequest) -> Accepted:
        return self._call(routes.restart(request))

    def drain(self, request: StopRequest) -> Accepted:
        return self._call(routes.drain(request))

    def shutdown(self, request: StopRequest) -> Accepted:
        return self._call(routes.shutdown(request))

    def note(self, request: NoteRequest) -> Accepted:
        return self._call(routes.note(request))

    def stream(
        self, after: int | None = None, hz: float | None = None, deadline: float | None = None
    ) -> Iterator[Event | Snapshot]:
        """Events after `after` and up to `hz` snapshots a second, until `deadline` (of time.monotonic) or the caller
        stops. Raises WaitTimeout at the deadline, NoDaemon when the daemon goes away; does not reconnect."""
        target = routes.stream(after, hz)
        parser = sse.Parser()
        with self._errors("GET /v1/stream"), wire.Connection(str(self.socket), self._timeout) as connection:
            connection.send("GET", target, None, {"Accept": "text/event-stream"})
            status, headers = connection.head()
            if status != 200:
                raise error_of(status, b"".join(connection.blocks(headers)), "GET /v1/stream")
            connection.set_timeout(_patience(deadline))
            for block in connection.blocks(headers):
                for message in parser.feed(block):
                    if (value := decode_message(message)) is not None:
                        yield value
                connection.set_timeout(_patience(deadline))
        raise NoDaemon("the daemon ended the stream", remedy="Run `specctl status` to see whether it still runs")

    def _call(self, call: routes.Call[T]) -> T:
        with self._errors(call.what):
            reply = wire.exchange(str(self.socket), call.method, call.target, call.body, self._timeout)
        if reply.status >= 400:
            raise error_of(reply.status, reply.body, call.what)
        return decode(call.reply, reply.body, call.what)

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise WaitTimeout(
                f"the daemon at {self.socket} did not answer {what} in time",
                remedy="Run `specctl doctor`; the daemon's log tells what it is doing",
            ) from error
        except OSError as error:
            raise no_daemon(self.socket, error) from error
        except wire.WireError as error:
            raise NoDaemon(f"the daemon at {self.socket} broke off its answer to {what}: {error}") from error
        except ValueError as error:
            raise ApiVersionError(what, str(error)) from error


def no_daemon(socket: Path, error: OSError) -> SpecctlError:
    """What an operating-system error at the daemon's socket means to the operator."""
    if isinstance(error, PermissionError):
        return NoDaemon(
            f"the daemon's socket {socket} may not be opened by this user", remedy="Run as the user who started it"
        )
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        return NoDaemon(f"no daemon runs at {socket}", remedy="Start one with `specctl up PROFILE`")
    if isinstance(error, ConnectionError):
        return NoDaemon(
            f"the daemon at {socket} closed the connection", remedy="Run `specctl status` to see whether it still runs"
        )
    return NoDaemon(
        f"the daemon's socket {socket} cannot be used: {error.strerror or error}",
        remedy="Check --socket, SPECCTL_SOCKET",
    )


def _patience(deadline: float | None) -> float:
    """Seconds to wait for the next bytes of a stream; raises TimeoutError when there are none left."""
    if deadline is None:
        return SILENCE_S
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return min(left, SILENCE_S)
