"""Waiting for what a command was for: a flip's outcome, a state of the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from specctl.client.blocking import Client
from specctl.core.api import Accepted
from specctl.core.errors import NotConfirmed, Refused, ServerFailed, SpecctlError, WaitTimeout
from specctl.core.events import Event, EventKind
from specctl.core.snapshot import Flip, ServerInfo, Snapshot
from specctl.core.states import FlipState, ServerState

STREAM_HZ = 4.0


def wait_for_flip(client: Client, accepted: Accepted, timeout: float) -> Flip:
    """The outcome of an accepted flip: confirmed by read-back, or ACKNOWLEDGED by an idle server.

    An idle server runs no round that could confirm it; its next one obeys. Raises Refused, NotConfirmed (no read-back
    came), ServerFailed (the server stopped meanwhile), WaitTimeout after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    try:
        for value in client.stream(accepted.after_event, STREAM_HZ, deadline):
            flip = _flip_in(value, accepted.epoch)
            if flip is not None:
                return _outcome(flip)
            if isinstance(value, Snapshot):
                _check_not_replaced(value, accepted.epoch)
                if value.server.state.is_resting:
                    raise _failed(value.server, f"the server stopped before flip {accepted.epoch} was confirmed")
    except WaitTimeout as error:
        if time.monotonic() < deadline:
            raise
        raise WaitTimeout(
            f"flip {accepted.epoch} has no outcome after {timeout:g} s", remedy="Run `specctl mode` to see what is live"
        ) from error
    raise AssertionError("a stream ends only by an exception")


def _flip_in(value: Event | Snapshot, epoch: int | None) -> Flip | None:
    """The flip of `epoch` if `value` tells how it ended."""
    if isinstance(value, Event):
        return value.flip if value.flip and value.flip.epoch == epoch and value.flip.state.is_final else None
    speculation = value.speculation
    for flip in (speculation.last_flip, speculation.pending):
        if flip is None or flip.epoch != epoch:
            continue
        if flip.state.is_final or (flip.state is FlipState.ACKNOWLEDGED and _is_idle(value)):
            return flip
    return None


def _check_not_replaced(snapshot: Snapshot, epoch: int | None) -> None:
    """Raise NotConfirmed when a later flip was confirmed: this one will not get an outcome of its own any more."""
    last = snapshot.speculation.last_flip
    if last is not None and epoch is not None and last.epoch > epoch and last.state is FlipState.CONFIRMED:
        raise NotConfirmed(
            f"flip {epoch} was replaced by flip {last.epoch} to {last.to_mode} before it was confirmed",
            remedy="Run `specctl status` to see who sent it",
        )


def _is_idle(snapshot: Snapshot) -> bool:
    """Known to run nothing; an unknown load is not idle."""
    return snapshot.engine.running.value == 0 and not snapshot.engine.queued.value


def _outcome(flip: Flip) -> Flip:
    match flip.state:
        case FlipState.REFUSED:
            raise Refused(f"the server refused mode {flip.to_mode}: {flip.refusal or 'no reason given'}")
        case FlipState.UNCONFIRMED:
            raise NotConfirmed(
                f"mode {flip.to_mode} was sent but not confirmed by read-back: "
                + (flip.refusal or f"{flip.ranks_confirmed} of {flip.ranks_total or '?'} ranks"),
                remedy="Run `specctl status` to see what is live before sending it again",
            )
    return flip


def wait_for_state(
    client: Client,
    target: Collection[ServerState],
    timeout: float,
    *,
    after_event: int = 0,
    new_run_after: int | None = None,
    on_snapshot: Callable[[Snapshot], None] | None = None,
) -> Snapshot:
    """The first snapshot in which the server is in a state of `target`.

    after_event: the command's `Accepted.after_event`; a resting state from before it does not count as its outcome.
    new_run_after: the run before a restart; a state of that run does not count either. Raises ServerFailed when the
    server comes to rest (or, waiting for READY, is DEGRADED) without `target`, Refused when its checks did not let it
    start, WaitTimeout after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    moved_by: int | None = None
    last: ServerState | None = None
    try:
        for value in client.stream(after_event, STREAM_HZ, deadline):
            if isinstance(value, Event):
                if moved_by is None and value.kind is EventKind.STATE and value.id > after_event:
                    moved_by = value.id
                continue
            if on_snapshot is not None:
                on_snapshot(value)
            server = value.server
            last = server.state
            is_old_run = new_run_after is not None and server.run == new_run_after
            if last in target and not is_old_run:
                return value
            # A snapshot can be older than an event that came before it.
            has_moved = not last.is_resting or (moved_by is not None and value.last_event_id >= moved_by)
            if has_moved and (last is ServerState.FAILED or not is_old_run):
                _check_not_lost(server, target)
    except WaitTimeout as error:
        if time.monotonic() < deadline:
            raise
        wanted = " or ".join(target)
        raise WaitTimeout(
            f"the server is {last or 'not known'}, not {wanted}, after {timeout:g} s",
            remedy="It goes on by itself; `specctl status --watch` shows how far it is",
        ) from error
    raise AssertionError("a stream ends only by an exception")


def _check_not_lost(server: ServerInfo, target: Collection[ServerState]) -> None:
    """Raise ServerFailed where waiting on is of no use."""
    state = server.state
    if state.is_resting:
        raise _failed(server, f"the server is {state}")
    if state is ServerState.DEGRADED and ServerState.READY in target:
        raise _failed(server, "the server runs but is DEGRADED")


def _failed(server: ServerInfo, what: str) -> SpecctlError:
    if server.state is ServerState.FAILED and server.started_at is None:
        # No process was ever started: the checks before the start refused it.
        return Refused(server.reason or what, remedy=server.remedy or "`specctl status` shows the checks")
    why = f": {server.reason}" if server.reason else ""
    return ServerFailed(what + why, remedy=server.remedy or "`specctl logs --tail 50` shows the end of its log")
