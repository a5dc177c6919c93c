"""`specctl mode`."""

from __future__ import annotations

from specctl.cli.connect import actor, connect
from specctl.cli.output import clean, data, data_json, say
from specctl.client.blocking import Client
from specctl.core.api import ModeRequest
from specctl.core.exitcodes import ExitCode

DEFAULT_TIMEOUT_S = 30.0


def mode(
    *,
    name: str | None = None,
    wait: bool = False,
    timeout: float = DEFAULT_TIMEOUT_S,
    reason: str = "",
    json: bool = False,
    socket: str | None = None,
) -> int:
    """Print the live mode, or flip to `name`; with `wait` until the read-back confirms it."""
    client = connect(socket)
    if name is None:
        return _show(client, json)
    accepted = client.set_mode(ModeRequest(mode=name, reason=reason, actor=actor()))
    if wait:
        from specctl.client.waiting import wait_for_flip

        flip = wait_for_flip(client, accepted, timeout)
        if json:
            data_json(flip)
        elif flip.state.is_final:
            latency = "with the first round after idling" if flip.latency_ms is None else f"{flip.latency_ms:,.0f} ms"
            data(f"{clean(flip.to_mode)} {flip.state}, epoch {flip.epoch}, {latency}")
        else:
            data(f"{clean(flip.to_mode)} {flip.state}, epoch {flip.epoch}")
        if not flip.state.is_final:
            say(f"the server is idle: mode {flip.to_mode} takes effect at the next decode round")
    elif json:
        data_json(accepted)
    else:
        epoch = "" if accepted.epoch is None else f", epoch {accepted.epoch}"
        data(f"{clean(name)} requested{epoch}")
    return int(ExitCode.OK)


def _show(client: Client, json: bool) -> int:
    snapshot = client.snapshot()
    speculation = snapshot.speculation
    if json:
        data_json(
            {
                "mode": speculation.mode,
                "control": speculation.control,
                "epoch": speculation.epoch,
                "cause": speculation.cause,
                "actor": speculation.actor,
                "reason": speculation.reason,
                "since": speculation.since,
                "pending": speculation.pending,
                "last_flip": speculation.last_flip,
                "modes": [info.mode.name for info in speculation.modes],
            }
        )
    else:
        data(clean(speculation.mode or "-"))
    if speculation.mode is None and not json:
        say(f"the mode is not known: the server is {snapshot.server.state}")
    elif speculation.pending is not None and not json:
        say(f"mode {speculation.pending.to_mode} is pending")
    return int(ExitCode.OK)
