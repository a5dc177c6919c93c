"""Background tasks of a run. They watch and report; what a report means is decided by the supervisor alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from specctl.core.errors import Refused, SpecctlError
from specctl.daemon.launching import Check, Launcher
from specctl.daemon.messages import (
    AnswersReady,
    Exited,
    InfoPolled,
    LogAlert,
    LogLines,
    NotReadyInTime,
    Polled,
    PreflightDone,
    ProcessDied,
    Report,
)
from specctl.daemon.run import Run
from specctl.daemon.steps import explain_death
from specctl.telemetry.engine import EngineClient, EngineError
from specctl.telemetry.pages import ServerInfoPage

POLL_S = 1.0
INFO_EVERY_S = 5.0
READY_EVERY_S = 0.25
READ_BACK_TRIES = 8
ADOPTED_ANSWER_S = 10.0
LOG_STARTING_S, LOG_SERVING_S = 0.2, 1.0
MEMBERS_EVERY_S = 10.0
Post = Callable[[Report], None]


async def preflight(run: Run, launcher: Launcher, post: Post) -> None:
    """Checks, and only when all passed fills the run folder. SpecctlError and OSError are reported, not raised."""
    assert run.launch is not None
    checks: list[Check] = []
    error: SpecctlError | None = None
    try:
        checks = await asyncio.to_thread(launcher.check, run.launch)
        if all(check.ok for check in checks):
            await asyncio.to_thread(launcher.prepare, run.launch)
    except SpecctlError as caught:
        error = caught
    except OSError as caught:
        error = Refused(f"the run folder {run.folder} cannot be filled: {caught.strerror or caught}")
    post(PreflightDone(run.number, checks, error))


async def wait_for_exit(run: Run, post: Post) -> None:
    """By pidfd: works for children and for adopted processes, and never waits for an end of file."""
    assert run.child is not None
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    fd = run.child.pidfd
    loop.add_reader(fd, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(fd)
    post(Exited(run.number))


async def follow_log(run: Run, post: Post) -> None:
    """Reads new lines for the start steps, rotates, and notices a deleted file."""
    assert run.log is not None
    told_deleted = False
    while True:
        lines = run.log.follow()
        if lines and not run.was_ready:
            post(LogLines(run.number, lines))
        elif lines and run.died is None and (who := explain_death(text for _, text in lines)):
            post(ProcessDied(run.number, who))
        if run.log.rotate_if_large():
            post(LogAlert(run.number, ""))
        if run.log.is_deleted and not told_deleted:
            told_deleted = True
            post(LogAlert(run.number, f"{run.log.path} was deleted; the server writes on, and its lines stay readable"))
        await asyncio.sleep(LOG_SERVING_S if run.was_ready else LOG_STARTING_S)


async def wait_until_ready(run: Run, post: Post) -> None:
    """Reports once: /ready answers 200 (with the read-back, if it came), or time is up."""
    assert run.engine is not None
    was_ready = run.adopted and run.record.ready_at is not None
    deadline = time.monotonic() + (ADOPTED_ANSWER_S if was_ready else run.settings.ready_timeout_s)
    while True:
        with suppress(EngineError):
            if await run.engine.ready():
                break
        if time.monotonic() > deadline and was_ready:
            # It was ready once: that it does not answer now is a fault to show, not a reason to end it.
            post(AnswersReady(run.number, None, ready=False))
            return
        if time.monotonic() > deadline:
            post(NotReadyInTime(run.number, run.settings.ready_timeout_s))
            return
        await asyncio.sleep(READY_EVERY_S)
    post(AnswersReady(run.number, await _read_back(run, run.engine)))


async def _read_back(run: Run, engine: EngineClient) -> ServerInfoPage | None:
    info = None
    for _ in range(READ_BACK_TRIES):
        with suppress(EngineError):
            info = await engine.server_info()
            if info.groups or not run.settings.modes:
                return info
        await asyncio.sleep(READY_EVERY_S)
    return info


async def poll_metrics(run: Run, post: Post) -> None:
    assert run.engine is not None
    while True:
        started = time.monotonic()
        try:
            post(Polled(run.number, page=await run.engine.metrics()))
        except EngineError as error:
            post(Polled(run.number, error=str(error)))
        await asyncio.sleep(max(0.0, POLL_S - (time.monotonic() - started)))


async def poll_info(run: Run, post: Post) -> None:
    """/server_info makes every scheduler answer, so it is asked rarely, and apart: a wedged one does not answer."""
    assert run.engine is not None
    while True:
        await asyncio.sleep(INFO_EVERY_S)
        info: ServerInfoPage | None = None
        ready: bool | None = None
        answered = True
        with suppress(EngineError):
            ready = await run.engine.ready()
        try:
            info = await run.engine.server_info()
        except EngineError as error:
            answered = error.status is not None
        post(InfoPolled(run.number, info, ready, answered))


async def watch_members(run: Run) -> None:
    """Remembers the run's processes while they can be proven, and their pids for memory readings."""
    assert run.members is not None
    while True:
        run.pids = frozenset(member.pid for member in await asyncio.to_thread(run.members.scan))
        await asyncio.sleep(MEMBERS_EVERY_S)
