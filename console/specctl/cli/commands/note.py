"""`specctl note` and `specctl version`."""

from __future__ import annotations

from specctl.cli.connect import actor, connect
from specctl.cli.output import clean, data, data_json, say
from specctl.core.api import NoteRequest
from specctl.core.errors import NoDaemon, SpecctlError
from specctl.core.exitcodes import ExitCode


def note(*, text: str, json: bool, socket: str | None) -> int:
    """Put a remark of the operator among the events."""
    accepted = connect(socket).note(NoteRequest(text=text, actor=actor()))
    if json:
        data_json(accepted)
    else:
        say("noted")
    return int(ExitCode.OK)


def version(*, json: bool, socket: str | None) -> int:
    """This program's version, and the running daemon's where there is one."""
    from specctl import __version__

    daemon: str | None
    try:
        daemon = connect(socket).snapshot().daemon.version
    except NoDaemon:
        daemon = None
    except SpecctlError as error:
        daemon = None
        say(str(error))
    if json:
        data_json({"version": __version__, "daemon": daemon})
    else:
        data(f"specctl {__version__}")
        if daemon is not None and daemon != __version__:
            say(f"the running daemon has version {clean(daemon)}")
    return int(ExitCode.OK)
