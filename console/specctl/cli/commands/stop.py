"""`specctl stop`, `restart` and `down`."""

from __future__ import annotations

from specctl.cli.commands.up import await_start, wait_target
from specctl.cli.connect import actor, connect, locate
from specctl.cli.orphans import find_orphan, is_absent
from specctl.cli.output import data, data_json, say
from specctl.cli.progress import Progress
from specctl.cli.spawn import await_daemon_end, start_daemon
from specctl.client.blocking import Client
from specctl.client.waiting import wait_for_state
from specctl.core.api import StopRequest
from specctl.core.errors import NoDaemon
from specctl.core.exitcodes import ExitCode
from specctl.core.snapshot import ServerInfo
from specctl.core.states import ServerState

DEFAULT_TIMEOUT_S = 300.0
RESTING = (ServerState.STOPPED, ServerState.FAILED)


def stop(*, drain: float | None, timeout: float, json: bool, socket: str | None) -> int:
    """Stop the server, the daemon stays. Returns when no process of the server is left."""
    client = connect(socket)
    before = client.snapshot()
    if before.server.state.is_resting:
        say(f"no server runs: it is {before.server.state}")
        _show(before.server, json)
        return int(ExitCode.OK)
    accepted = client.stop(StopRequest(drain_s=drain, actor=actor()))
    progress = Progress(before.server)
    after = wait_for_state(client, RESTING, timeout, after_event=accepted.after_event, on_snapshot=progress)
    _show(after.server, json)
    return int(ExitCode.OK)


def restart(*, drain: float | None, wait: str, timeout: float, json: bool, socket: str | None) -> int:
    """Stop the server and start it again with the same profile."""
    target = wait_target(wait)
    client = connect(socket)
    before = client.snapshot()
    accepted = client.restart(StopRequest(drain_s=drain, actor=actor()))
    if target:
        after = await_start(
            client,
            target,
            timeout,
            after_event=accepted.after_event,
            new_run_after=before.server.run,
            progress=Progress(before.server),
        )
    else:
        after = client.snapshot()
    _show(after.server, json)
    return int(ExitCode.OK)


def down(*, drain: float | None, timeout: float, json: bool, socket: str | None) -> int:
    """Stop the server, then the daemon; nothing of specctl is left running."""
    where = locate(socket)
    client = Client(where.socket)
    try:
        before = client.snapshot()
    except NoDaemon as error:
        if not is_absent(error):
            raise
        if (orphan := find_orphan(where)) is None:
            say("nothing runs")
            if json:
                data_json({"stopped": False})
            return int(ExitCode.OK)
        say(f"the daemon is gone, but {orphan.describe()}: a daemon takes it over to end it")
        before, _ = start_daemon(where)
    client.shutdown(StopRequest(drain_s=drain, actor=actor()))
    await_daemon_end(client, before, timeout, Progress(before.server))
    if json:
        data_json({"stopped": True})
    else:
        data("the server and the daemon have ended")
    return int(ExitCode.OK)


def _show(server: ServerInfo, json: bool) -> None:
    if json:
        data_json(server)
    else:
        data(str(server.state))
