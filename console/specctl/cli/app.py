"""The commands' options, declared for typer. Bodies are imported when a command runs."""

from __future__ import annotations

import errno
import gc
import math
from collections.abc import Sequence
from typing import Annotated

import typer

from specctl.cli.output import OutputError
from specctl.core.errors import UsageError
from specctl.core.exitcodes import ExitCode


def _a_number(value: float | None) -> float | None:
    """typer's own bounds let "nan" and "inf" pass."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a number of seconds")
    return value


Socket = Annotated[str | None, typer.Option("--socket", help="The daemon's socket, instead of SPECCTL_SOCKET.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Drain = Annotated[
    float | None,
    typer.Option("--drain", min=0, callback=_a_number, help="Seconds that running requests may take; 0: none."),
]
Timeout = Annotated[float, typer.Option("--timeout", min=0.001, callback=_a_number, help="Seconds to wait.")]
Wait = Annotated[str, typer.Option("--wait", help="State to wait for: READY, STARTING or none.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a profile's value, as table.key=value.")
]
NoMouse = Annotated[bool, typer.Option("--no-mouse", help="The console leaves the mouse to the terminal.")]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="The console changes nothing.")]
Profile = Annotated[str, typer.Argument(metavar="PROFILE", help="A profile's name or a TOML file.")]

_PLAIN = {"rich_markup_mode": None, "pretty_exceptions_enable": False, "no_args_is_help": False}
app = typer.Typer(
    name="specctl",
    help="Operations console for SGLang servers with speculative decoding.",
    **_PLAIN,  # type: ignore[arg-type]
)


def run(words: Sequence[str]) -> int:
    """Read `words` with typer and run the command. Usage mistakes become UsageError."""
    gc.enable()
    try:
        code = app(list(words), prog_name="specctl", standalone_mode=False)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = "specctl" if context is None else context.command_path
        raise UsageError(error.format_message().rstrip("."), remedy=f"Run `{command} --help`") from error
    except SystemExit as error:
        # typer turns a reader that left into exit code 1.
        if isinstance(error.__context__, BrokenPipeError):
            raise error.__context__ from None
        raise
    except OSError as error:
        # typer's help is written by itself; an error of a file would name it.
        if error.filename is None and error.errno == errno.ENOSPC:
            raise OutputError(error.strerror) from error
        raise
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    return int(ExitCode.OK) if code is None else int(code)


@app.callback(invoke_without_command=True)
def _home(
    context: typer.Context, no_mouse: NoMouse = False, read_only: ReadOnly = False, socket: Socket = None
) -> int | None:
    """Operations console for SGLang servers with speculative decoding. Without a command: open the console."""
    if context.invoked_subcommand is not None:
        if socket is not None:
            import os

            os.environ["SPECCTL_SOCKET"] = socket
        return None
    from specctl.cli.commands.home import home

    return home(mouse=not no_mouse, read_only=read_only, socket=socket)


@app.command("up")
def _up(
    profile: Profile,
    detach: Annotated[bool, typer.Option("--detach", help="Do not open the console.")] = False,
    wait: Wait = "READY",
    timeout: Timeout = 1800.0,
    overrides: Overrides = None,
    read_only: ReadOnly = False,
    no_mouse: NoMouse = False,
    json: Json = False,
    socket: Socket = None,
) -> int:
    """Start the server of PROFILE (and the daemon, if none runs), wait until it is ready, open the console."""
    from specctl.cli.commands.up import UpOptions, up

    return up(
        UpOptions(
            profile=profile,
            detach=detach,
            wait=wait,
            timeout=timeout,
            overrides=overrides or [],
            read_only=read_only,
            mouse=not no_mouse,
            json=json,
            socket=socket,
        )
    )


@app.command("status")
def _status(
    watch: Annotated[bool, typer.Option("--watch", help="Print again each second; with --json one line each.")] = False,
    json: Json = False,
    socket: Socket = None,
) -> int:
    """Show the server, its mode and its numbers."""
    from specctl.cli.commands.status import status

    return status(watch=watch, json=json, socket=socket)


@app.command("mode")
def _mode(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Mode to flip to; none: print the live one.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until the read-back confirms it.")] = False,
    timeout: Timeout = 30.0,
    reason: Annotated[str, typer.Option("--reason", help="For the audit trail.")] = "",
    json: Json = False,
    socket: Socket = None,
) -> int:
    """Show or change the running server's speculation mode."""
    from specctl.cli.commands.mode import mode

    return mode(name=name, wait=wait, timeout=timeout, reason=reason, json=json, socket=socket)


@app.command("logs")
def _logs(
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as the log grows.")] = False,
    run: Annotated[int | None, typer.Option("--run", min=1, help="A run's number; none: the latest.")] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", min=1, max=5000, help="Only the last lines; default 200.")
    ] = None,
    since: Annotated[str | None, typer.Option("--since", help="10m, 2h, 14:02 or an ISO time.")] = None,
    grep: Annotated[str | None, typer.Option("--grep", metavar="RE", help="Only lines that match.")] = None,
    json: Json = False,
    socket: Socket = None,
) -> int:
    """Print the server's output."""
    from specctl.cli.commands.logs import logs

    return logs(follow=follow, run=run, tail=tail, since=since, grep=grep, json=json, socket=socket)


@app.command("stop")
def _stop(drain: Drain = None, timeout: Timeout = 300.0, json: Json = False, socket: Socket = None) -> int:
    """Stop the server; the daemon stays."""
    from specctl.cli.commands.stop import stop

    return stop(drain=drain, timeout=timeout, json=json, socket=socket)


@app.command("restart")
def _restart(
    drain: Drain = None, wait: Wait = "READY", timeout: Timeout = 1800.0, json: Json = False, socket: Socket = None
) -> int:
    """Stop the server and start it again."""
    from specctl.cli.commands.stop import restart

    return restart(drain=drain, wait=wait, timeout=timeout, json=json, socket=socket)


@app.command("down")
def _down(drain: Drain = None, timeout: Timeout = 300.0, json: Json = False, socket: Socket = None) -> int:
    """Stop the server, then the daemon."""
    from specctl.cli.commands.stop import down

    return down(drain=drain, timeout=timeout, json=json, socket=socket)


@app.command("note")
def _note(text: Annotated[str, typer.Argument(metavar="TEXT")], json: Json = False, socket: Socket = None) -> int:
    """Put a remark among the events."""
    from specctl.cli.commands.note import note

    return note(text=text, json=json, socket=socket)


@app.command("version")
def _version(json: Json = False, socket: Socket = None) -> int:
    """Print the version."""
    from specctl.cli.commands.note import version

    return version(json=json, socket=socket)


@app.command("plan")
def _plan(
    profile: Profile,
    on: Annotated[str, typer.Option("--on", help="Launcher: local.")] = "local",
    overrides: Overrides = None,
    json: Json = False,
) -> int:
    """Print what a start would do: command line, environment, checks. Starts nothing."""
    from specctl.cli.offline.plan import plan

    return plan(profile=profile, on=on, overrides=overrides or [], json=json)


@app.command("doctor")
def _doctor(json: Json = False, socket: Socket = None) -> int:
    """Look at everything that a start needs."""
    from specctl.cli.offline.doctor import doctor

    return doctor(json=json, socket=socket)


profiles = typer.Typer(help="The profiles that can be started.", **_PLAIN)  # type: ignore[arg-type]
app.add_typer(profiles, name="profiles")


@profiles.command("list")
def _profiles_list(json: Json = False) -> int:
    """List every profile that has a name."""
    from specctl.cli.offline.profiles import list_all

    return list_all(json=json)


@profiles.command("show")
def _profiles_show(profile: Profile, json: Json = False) -> int:
    """Print a profile; with --json every value, defaults included."""
    from specctl.cli.offline.profiles import show

    return show(profile=profile, json=json)


@profiles.command("validate")
def _profiles_validate(
    names: Annotated[list[str], typer.Argument(metavar="PROFILE...", help="Names or TOML files.")], json: Json = False
) -> int:
    """Check profiles without starting anything."""
    from specctl.cli.offline.profiles import validate

    return validate(profiles=names, json=json)


@profiles.command("schema")
def _profiles_schema() -> int:
    """Print the JSON schema of a profile."""
    from specctl.cli.offline.profiles import schema

    return schema()


engine = typer.Typer(help="The environments that run SGLang.", **_PLAIN)  # type: ignore[arg-type]
app.add_typer(engine, name="engine")


@engine.command("install")
def _engine_install(
    cpu: Annotated[bool, typer.Option("--cpu", help="An engine for machines without a GPU.")] = False,
    torch_index: Annotated[str, typer.Option("--torch-index", help="Package index to get torch from.")] = "",
    torch_version: Annotated[str | None, typer.Option("--torch-version", help="Version of torch.")] = None,
    sglang: Annotated[str | None, typer.Option("--sglang", help="Version of SGLang.")] = None,
    json: Json = False,
) -> int:
    """Make an engine environment; goes on where an earlier try stopped."""
    from specctl.cli.offline.engine import install

    return install(cpu=cpu, torch_index=torch_index, torch_version=torch_version, sglang=sglang, json=json)


@engine.command("check")
def _engine_check(json: Json = False) -> int:
    """Look at the engine environments that are installed."""
    from specctl.cli.offline.engine import check_engines

    return check_engines(json=json)
