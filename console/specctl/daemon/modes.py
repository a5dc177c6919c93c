"""The live mode as read back, and the flips that change it. Part of the supervisor: called by its task only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from specctl.core.api import Accepted, ModeRequest
from specctl.core.errors import Refused, UsageError
from specctl.core.events import EventKind
from specctl.core.modes import Mode, boot_mode
from specctl.core.snapshot import Flip, ModeInfo, ServerInfo, SpeculationInfo
from specctl.core.states import FlipCause, FlipState, PatchStatus, ServerState
from specctl.daemon.events import EventLog
from specctl.daemon.flips import FlipCommand, FlipWatcher
from specctl.daemon.messages import FlipProgress, Report
from specctl.daemon.run import Run
from specctl.telemetry.pages import MetricsPage


class ModeControl:
    """`speculation(run, info)` is the published picture; everything else is called by the supervisor."""

    def __init__(self, events: EventLog, post: Callable[[Report], None]) -> None:
        self._events, self._post = events, post
        self._epoch = 0
        self._mode: str | None = None
        self._active_epoch = 0
        self._since: float | None = None
        self._flips = 0
        self._ranks = 0
        self._cause: FlipCause | None = None
        self._actor, self._reason = "", ""
        self._pending: Flip | None = None
        self._last: Flip | None = None
        self._watch: asyncio.Task[None] | None = None
        self._wanted: tuple[str, str] | None = None  # (mode, actor) that a restarted server is put into again

    # -- read-back ---------------------------------------------------------

    def observe_info(self, run: Run) -> None:
        """The groups' own account: the truth about the live mode."""
        groups = run.info.groups if run.info else ()
        if not groups:
            return
        self._epoch = max(self._epoch, *(group.epoch for group in groups))
        self._flips = max(group.flips for group in groups)
        self._ranks = sum(max(1, group.tp_size) for group in groups)
        modes = {group.mode for group in groups}
        self._see(modes.pop() if len(modes) == 1 else None, groups[0].active_epoch, groups[0].cause)

    def observe_page(self, run: Run, page: MetricsPage) -> None:
        if not page.active_mode:
            return
        modes = set(page.active_mode.values())
        epochs = set(page.active_epoch.values())
        if len(modes) == 1 and len(epochs) <= 1:
            self._see(modes.pop(), epochs.pop() if epochs else self._active_epoch, None)

    def _see(self, mode: str | None, epoch: int, cause: str | None) -> None:
        if epoch < self._active_epoch or (epoch == self._active_epoch and mode == self._mode):
            return
        self._mode, self._active_epoch, self._since = mode, epoch, time.time()
        if self._pending is not None and self._pending.epoch == epoch:
            flip: Flip | None = self._pending
        else:
            flip = self._last if self._last is not None and self._last.epoch == epoch else None
        if flip is not None:
            self._cause, self._actor, self._reason = flip.cause, flip.actor, flip.reason
        else:
            self._cause = FlipCause(cause) if cause in set(FlipCause) else (FlipCause.BOOT if epoch == 0 else None)
            self._actor, self._reason = "", ""

    # -- life of a run -----------------------------------------------------

    def forget(self) -> None:
        """The operator starts a server: nothing of an earlier one is put into it."""
        self._wanted = None
        self._new_process()

    def _new_process(self) -> None:
        self._mode, self._active_epoch, self._since, self._flips, self._ranks = None, 0, None, 0, 0
        self._cause, self._actor, self._reason = None, "", ""
        self._last = None

    def abandon(self, why: str) -> None:
        """The server goes away: a pending flip gets its outcome."""
        self._finish(FlipState.UNCONFIRMED, why)
        self._new_process()

    def adopt(self, run: Run) -> None:
        """What the event log knows of the run's last flip: its epoch is never used again."""
        last = self._events.last_flip(run.number)
        if last is None:
            return
        self._epoch = max(self._epoch, last.epoch)
        self._last = last
        if last.cause is FlipCause.OPERATOR and last.state is FlipState.CONFIRMED:
            self._wanted = (last.to_mode, last.actor)
        if not last.state.is_final:
            self._last = replace(last, state=FlipState.UNCONFIRMED, refusal="the daemon ended while it watched")
            self._announce(self._last, run)

    def apply_again(self, run: Run) -> bool:
        """After a restart the engine is in its boot mode; the operator's choice is sent again.

        False when that has to wait: the server has not read back yet that it can be flipped.
        """
        if self._wanted is None or not run.settings.modes:
            return True
        if run.patch is not PatchStatus.ACTIVE:
            return False
        mode, actor = self._wanted
        has_one_under_way = self._pending is not None and self._pending.to_mode == mode
        if boot_mode(run.settings.modes).name != mode and self._mode != mode and not has_one_under_way:
            request = ModeRequest(mode=mode, reason="re-applied after restart", actor=actor)
            self._send(request, run, FlipCause.BOOT)
        return True

    # -- commands ----------------------------------------------------------

    def command(self, request: ModeRequest, info: ServerInfo, run: Run | None) -> Accepted:
        """Raises UsageError for an unknown mode, Refused where the server cannot be flipped now."""
        if run is None or not info.state.is_serving:
            raise Refused(f"the server is {info.state.value}: no mode can be set", remedy="Wait until it is READY")
        names = [mode.name for mode in run.settings.modes]
        if request.mode not in names:
            known = ", ".join(names) or "none"
            given = repr(request.mode)
            shown = given if len(given) <= 60 else f"{given[:57]}..."
            raise UsageError(f"mode {shown} is not one of this profile's: {known}")
        if why := self._unavailable(info, run):
            raise Refused(f"mode {request.mode} cannot be set: {why}", remedy="See `specctl engine check`")
        after = self._events.add(
            EventKind.COMMAND, f"mode {request.mode}", run=run.number, data={"actor": request.actor}
        ).id
        self._wanted = (request.mode, request.actor)
        epoch = self._send(request, run, FlipCause.OPERATOR)
        return Accepted(after_event=after, epoch=epoch)

    def _unavailable(self, info: ServerInfo, run: Run | None) -> str | None:
        if run is None or not info.state.is_serving:
            return f"the server is {info.state.value}"
        if run.patch is PatchStatus.ACTIVE:
            return None
        return f"the engine patch is {run.patch.value}" + (f": {run.patch_reason}" if run.patch_reason else "")

    def _send(self, request: ModeRequest, run: Run, cause: FlipCause) -> int:
        assert run.engine is not None
        received = time.monotonic()
        self._epoch += 1
        self._finish(FlipState.UNCONFIRMED, f"superseded by epoch {self._epoch}")
        names = [mode.name for mode in run.settings.modes]
        self._pending = Flip(
            epoch=self._epoch,
            to_mode=request.mode,
            from_mode=self._mode,
            cause=cause,
            actor=request.actor,
            reason=request.reason,
            requested_at=time.time(),
            ranks_total=self._ranks,
        )
        self._announce(self._pending, run)
        command = FlipCommand(
            run=run.number,
            epoch=self._epoch,
            mode=request.mode,
            mode_number=names.index(request.mode),
            cause=cause,
            received=received,
            timeout_s=run.settings.flip_timeout_s,
            ranks=max(1, self._ranks),
        )
        watcher = FlipWatcher(run.engine, command, self._post, lambda: bool(run.meter.page and run.meter.page.running))
        self._watch = run.spawn(watcher.run())
        self._run = run
        return self._epoch

    def progress(self, run: Run, report: FlipProgress) -> None:
        """What the watcher of the pending flip found out."""
        flip = self._pending
        if flip is None or flip.epoch != report.epoch:
            return
        flip = replace(
            flip,
            ranks_confirmed=report.ranks_confirmed,
            ranks_total=report.ranks_total or flip.ranks_total,
        )
        if report.confirmed_at is not None:
            self._pending = replace(
                flip,
                confirmed_at=report.confirmed_at,
                latency_ms=report.latency_ms,
                engine_ms=report.engine_ms,
            )
            self.observe_info(run)
            self._finish(FlipState.CONFIRMED, None)
        elif report.refusal is not None or report.gave_up is not None:
            state = FlipState.REFUSED if report.refusal is not None else FlipState.UNCONFIRMED
            self._pending = flip
            self._finish(state, report.refusal or report.gave_up)
        elif report.acknowledged and flip.state is FlipState.REQUESTED:
            self._pending = replace(flip, state=FlipState.ACKNOWLEDGED)
            self._announce(self._pending, run)

    def _finish(self, state: FlipState, refusal: str | None) -> None:
        """Ends the pending flip, if there is one."""
        if self._pending is None:
            return
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._last = replace(self._pending, state=state, refusal=refusal)
        self._pending = None
        self._announce(self._last, self._run)

    def _announce(self, flip: Flip, run: Run) -> None:
        self._events.add(EventKind.FLIP, _text(flip), run=run.number, flip=flip)

    # -- the picture -------------------------------------------------------

    def active(self, run: Run | None) -> Mode | None:
        return run.mode_called(self._mode) if run is not None else None

    def speculation(self, run: Run | None, info: ServerInfo, now: float) -> SpeculationInfo:
        if run is None:
            return SpeculationInfo()
        why = self._unavailable(info, run)
        live = not info.state.is_resting and info.state is not ServerState.BACKOFF
        version = run.info.groups[0].patch if run.info and run.info.groups else None
        return SpeculationInfo(
            patch=run.patch if live else PatchStatus.UNKNOWN,
            patch_reason=run.patch_reason,
            patch_version=version,
            mode=self._mode,
            epoch=self._active_epoch,
            cause=self._cause,
            actor=self._actor,
            reason=self._reason,
            since=self._since,
            pending=self._pending,
            last_flip=self._last,
            flips=self._flips,
            ranks=self._ranks,
            modes=tuple(ModeInfo(mode=mode, unavailable=why) for mode in run.settings.modes),
            by_mode=run.meter.by_mode(now, run.settings.modes),
        )


def _text(flip: Flip) -> str:
    text = f"flip {flip.epoch} {flip.from_mode or '?'} -> {flip.to_mode} {flip.state.value}"
    if flip.latency_ms is not None:
        text += f" in {flip.latency_ms:.0f} ms"
    elif flip.state is FlipState.CONFIRMED:
        text += " with the first round after idling"
    return f"{text}: {flip.refusal}" if flip.refusal else text
