"""Every state that the screen must show well, by name; the text dumps and the pictures are made of these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import scripted as s
from textual.pilot import Pilot

from specctl.core.modes import DEFAULT_MODES, Mode
from specctl.core.snapshot import DaemonInfo, Snapshot
from specctl.core.states import ServerState
from specctl.tui.app import ConsoleApp
from specctl.tui.glyphs import UNICODE, Glyphs

NARROW_SIZE = (80, 24)
WIDE_SIZE = (160, 48)
LOW_SIZE = (60, 16)
SOCKET = "/run/user/1000/specctl/specctld.sock"


@dataclass(frozen=True)
class Scene:
    """Makes a fresh source; `keys` are pressed before the picture is taken."""

    make: Callable[[], s.ScriptedSource]
    keys: tuple[str, ...] = ()
    read_only: bool = False

    def __call__(self) -> s.ScriptedSource:
        return self.make()


def make_app(
    source: s.ScriptedSource, *, theme: str = "dark", glyphs: Glyphs = UNICODE, read_only: bool = False
) -> ConsoleApp:
    """The real application with its clock stopped, so that no age ever moves."""
    return ConsoleApp(
        source,
        socket=SOCKET,
        read_only=read_only,
        environ={"HOME": "/nonexistent", "SPECCTL_THEME": theme},
        glyphs=glyphs,
        clock=lambda: source.now,
    )


def _read_only() -> Snapshot:
    shot = s.snapshot()
    daemon: DaemonInfo = replace(shot.daemon, read_only=True)
    return replace(shot, daemon=daemon)


def _stopping() -> Snapshot:
    shot = s.snapshot()
    server = replace(
        shot.server,
        state=ServerState.STOPPING,
        since=s.NOW - 12,
        reason="waits for the last process, KILL in 8 s",
        blockers=("pid 5190 (sglang::scheduler_TP3), 12 s, GPU 3 holds 71.2 GiB",),
    )
    return replace(shot, server=server)


def _backoff() -> Snapshot:
    shot = s.failed()
    return replace(shot, server=replace(shot.server, state=ServerState.BACKOFF, restarts=1, retry_at=s.NOW + 8))


def _stopped() -> Snapshot:
    shot = s.snapshot()
    server = replace(shot.server, state=ServerState.STOPPED, since=s.NOW - 90, ready_at=None)
    return replace(shot, server=server, speculation=s.SpeculationInfo(), engine=s.EngineNumbers())


def _unconfirmed() -> Snapshot:
    bad = s.flip(42, "off", "tree", state=s.FlipState.UNCONFIRMED, latency_ms=None, engine_ms=None, ranks_confirmed=7)
    return s.snapshot(speculation=s.speculation("tree", last_flip=bad, epoch=42))


def _many_modes() -> Snapshot:
    modes = (
        *DEFAULT_MODES,
        Mode("tree-deep", 5, 4, 32),
        Mode("chain5", 5, 1, 6),
    )
    return s.snapshot(speculation=s.speculation("tree-deep", modes=modes))


SCENES: dict[str, Scene] = {
    "tree": Scene(lambda: s.scene(s.snapshot("tree"))),
    "chain": Scene(lambda: s.scene(s.snapshot("chain"), mode="chain")),
    "off": Scene(lambda: s.scene(s.snapshot("off"), mode="off")),
    "pending": Scene(lambda: s.scene(s.snapshot(speculation=s.speculation(pending=s.PENDING)))),
    "unconfirmed": Scene(lambda: s.scene(_unconfirmed())),
    "starting": Scene(lambda: s.scene(s.starting())),
    "failed": Scene(lambda: s.scene(s.failed())),
    "backoff": Scene(lambda: s.scene(_backoff())),
    "stopping": Scene(lambda: s.scene(_stopping())),
    "stopped": Scene(lambda: s.scene(_stopped())),
    "no-daemon": Scene(lambda: s.scene(None, s.LOST, with_events=False)),
    "disconnected": Scene(lambda: s.scene(s.snapshot(), s.LOST, 14.0, s.LOST)),
    "no-gpu": Scene(lambda: s.scene(s.no_gpu())),
    "8-gpus": Scene(lambda: s.scene(s.snapshot(gpus=8))),
    "lost-gpu": Scene(lambda: s.scene(s.lost_gpu())),
    "patch-refused": Scene(lambda: s.scene(s.refused_patch())),
    "read-only": Scene(lambda: s.scene(_read_only())),
    "stale": Scene(lambda: s.scene(s.stale())),
    "many-modes": Scene(lambda: s.scene(_many_modes())),
    "help": Scene(lambda: s.scene(s.snapshot()), keys=("question_mark",)),
    "logs": Scene(lambda: s.scene(s.snapshot()), keys=("l",)),
    "stop": Scene(lambda: s.scene(s.snapshot()), keys=("s",)),
    "note": Scene(lambda: s.scene(s.snapshot()), keys=("n",)),
}


def screen_text(app: ConsoleApp) -> str:
    """The cells of the screen that the application composed, without their styles."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips) + "\n"


async def settle(pilot: Pilot[int], until: Callable[[], bool] = lambda: True) -> None:
    """Wait until everything that was told is painted and `until` holds; fails when that does not come about."""
    for _ in range(200):
        await pilot.pause(0.02)
        app = pilot.app
        assert isinstance(app, ConsoleApp)
        if app.idle and until():
            await pilot.pause()
            return
    raise AssertionError("the screen did not settle:\n" + screen_text(app))
