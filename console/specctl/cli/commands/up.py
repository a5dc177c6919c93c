"""`specctl up`: the daemon, then the server, then the console."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specctl.cli.connect import actor, locate, parse_overrides, profile_reference
from specctl.cli.output import clean, data, data_json, is_terminal, say
from specctl.cli.progress import Progress
from specctl.cli.spawn import await_daemon_end, live_daemon, start_daemon
from specctl.client.blocking import Client
from specctl.client.waiting import wait_for_state
from specctl.config.paths import Paths
from specctl.core.api import StartRequest, StopRequest
from specctl.core.errors import Refused, UsageError
from specctl.core.exitcodes import ExitCode
from specctl.core.snapshot import ServerInfo, Snapshot
from specctl.core.states import ServerState

if TYPE_CHECKING:
    from specctl.config.profile import Profile

DEFAULT_TIMEOUT_S = 1800.0
END_TIMEOUT_S = 30.0
WAITS: dict[str, Collection[ServerState]] = {
    "READY": (ServerState.READY,),
    "STARTING": (ServerState.STARTING, ServerState.READY, ServerState.DEGRADED),
    "none": (),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    profile: str
    detach: bool = False
    wait: str = "READY"
    timeout: float = DEFAULT_TIMEOUT_S
    overrides: list[str] = field(default_factory=list)
    read_only: bool = False
    mouse: bool = True
    json: bool = False
    socket: str | None = None


def up(options: UpOptions) -> int:
    """Bring the server of a profile up; a server that already runs it is a success."""
    target = wait_target(options.wait)
    where = locate(options.socket)
    request = StartRequest(
        profile=profile_reference(options.profile), overrides=parse_overrides(options.overrides), actor=actor()
    )
    snapshot = _bring_up(where, request, target, options.timeout)
    _show(snapshot.server, options.json)
    if options.detach or options.json or not is_terminal():
        return int(ExitCode.OK)
    from specctl.tui import run

    return run(where.socket, mouse=options.mouse, read_only=options.read_only)


def wait_target(name: str) -> Collection[ServerState]:
    for known, target in WAITS.items():
        if known.lower() == name.lower():
            return target
    raise UsageError(f"--wait {name!r} is not one of {', '.join(WAITS)}")


def _bring_up(where: Paths, request: StartRequest, target: Collection[ServerState], timeout: float) -> Snapshot:
    client = Client(where.socket)
    snapshot, is_ours = live_daemon(client), False
    if snapshot is None:
        # Loaded here as the daemon will: a mistake in it must not leave a daemon behind that nobody asked for.
        _load(request, where)
        snapshot, is_ours = start_daemon(where)
    try:
        return _start(client, snapshot, request, where, target, timeout)
    except (Refused, UsageError):
        if is_ours:
            # It was started for this server only, and there will be none.
            client.shutdown(StopRequest(drain_s=0, actor=request.actor))
            await_daemon_end(client, snapshot, END_TIMEOUT_S, lambda _: None)
        raise


def _start(
    client: Client,
    snapshot: Snapshot,
    request: StartRequest,
    where: Paths,
    target: Collection[ServerState],
    timeout: float,
) -> Snapshot:
    after, before = snapshot.last_event_id, snapshot.server
    if snapshot.server.state.is_resting:
        after = client.start(request).after_event
    else:
        _check_same(snapshot.server, request, where)
        say(f"profile {snapshot.server.profile} already runs")
    if not target:
        return client.snapshot()
    return await_start(client, target, timeout, after_event=after, progress=Progress(before))


def _load(request: StartRequest, where: Paths) -> Profile:
    from specctl.config.load import load_profile

    return load_profile(request.profile, request.overrides, where)


def _check_same(server: ServerInfo, request: StartRequest, where: Paths) -> None:
    """Raise Refused unless the server that runs is the one that was asked for."""
    if server.profile != request.profile and server.profile != _load(request, where).name:
        raise Refused(
            f"a server of profile {server.profile} is {server.state}, so {request.profile} cannot start",
            remedy="End it with `specctl stop`, or give this one its own SPECCTL_HOME",
        )
    if request.overrides and request.overrides != _overrides_of(server.run, where):
        keys = ", ".join(request.overrides)
        raise Refused(
            f"profile {request.profile} already runs; --set {keys} cannot change a running server",
            remedy="End it with `specctl stop` first",
        )


def _overrides_of(run: int | None, where: Paths) -> object:
    """What the run was started with, from its run.json; None where that cannot be read."""
    import json

    try:
        record = json.loads((where.run_dir(run or 0) / "run.json").read_bytes())
    except (OSError, ValueError):
        return None
    return record.get("overrides") if isinstance(record, dict) else None


def await_start(
    client: Client,
    target: Collection[ServerState],
    timeout: float,
    *,
    after_event: int,
    progress: Progress,
    new_run_after: int | None = None,
) -> Snapshot:
    """Wait for a start and tell its steps. Ctrl-C ends the wait, not the server."""
    try:
        return wait_for_state(
            client, target, timeout, after_event=after_event, new_run_after=new_run_after, on_snapshot=progress
        )
    except KeyboardInterrupt:
        say("the server goes on starting: `specctl status` shows it, `specctl stop` ends it")
        raise


def _show(server: ServerInfo, json: bool) -> None:
    if json:
        data_json(server)
    else:
        run = "" if server.run is None else f"  run {server.run}"
        data(f"{server.state}  {clean(server.profile or '-')}  {clean(server.url or '-')}{run}")
