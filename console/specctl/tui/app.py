"""The application: source in, store, screens out; actions back to the source."""

from __future__ import annotations

import asyncio
import gc
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import ClassVar

from rich.console import RenderableType
from textual import events
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen, Screen

from specctl.core.api import Accepted
from specctl.core.errors import SpecctlError
from specctl.tui import themes
from specctl.tui.actions import ACTIONS, Action, key_of_mode, mode_keys, refusal
from specctl.tui.glyphs import Glyphs
from specctl.tui.lean import LeanUpdate, Shown
from specctl.tui.screens.main import MainScreen
from specctl.tui.source import Source
from specctl.tui.store import LinkLost, LinkState, Store, View
from specctl.tui.terminal import Keeper
from specctl.tui.text import clean
from specctl.tui.widgets.palette import HasPalette

SETTLE_S = 0.03
TICK_S = 1.0
PENDING_TICK_S = 0.1
LOG_POLL_S = 1.0
RETRY_S = 1.0
LOG_BATCH = 200
HISTORY_S = 3600.0
SIGNALS = {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 130, signal.SIGQUIT: 131}
BY_ID = {action.id: action for action in ACTIONS}


class ConsoleApp(HasPalette):
    CSS_PATH = themes.shipped_dir() / themes.STYLESHEET
    TITLE = "specctl"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(a.key, a.id, a.label, id=f"specctl.{a.id}", tooltip=a.help) for a in ACTIONS),
        Binding("ctrl+c,ctrl+q", "detach", "detach", show=False, priority=True),
    ]

    def __init__(
        self,
        source: Source,
        *,
        socket: str = "",
        read_only: bool = False,
        environ: Mapping[str, str],
        glyphs: Glyphs,
        keeper: Keeper | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(ansi_color=True if environ.get("NO_COLOR") else None)
        self._source, self._glyphs, self._keeper, self._monotonic = source, glyphs, keeper, clock
        self._environ = environ
        self._store = Store(socket=socket, read_only=read_only, now=clock())
        self._main = MainScreen(glyphs, self.palette, self._store.view)
        self._settling: asyncio.TimerHandle | None = None
        self._counting: asyncio.TimerHandle | None = None
        self._painted = False
        self._filled = False
        self._log_next: int | None = None
        self._log_run: int | None = None
        self._problems: list[str] = []
        self._shown = Shown()

    @property
    def view(self) -> View:
        return self._store.view

    @property
    def idle(self) -> bool:
        """Nothing that arrived waits to be painted."""
        return self._painted and self._main.is_attached and bool(self._main.size)

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        """Textual's one way to the terminal; updates go there lean."""
        if isinstance(renderable, ChopsUpdate | LayoutUpdate):
            self._shown.fit((self.size.width, self.size.height))
            renderable = LeanUpdate(renderable, self._shown)  # type: ignore[assignment]
        super()._display(screen, renderable)

    def action_redraw(self) -> None:
        self._shown.forget()
        self.screen.refresh(layout=True)

    def on_load(self) -> None:
        found, self._problems = themes.load_themes(self._environ)
        for theme in found:
            self.register_theme(theme)
        self.theme = themes.choose(self._environ, [t.name for t in found], self.console.color_system)

    def get_default_screen(self) -> Screen[None]:
        return self._main

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        for number, code in SIGNALS.items():
            loop.add_signal_handler(number, self._leave, code)
        self.set_class(self._glyphs.ascii, "ascii")
        # The first picture comes before the client's imports.
        self.call_after_refresh(self._listen)
        self.set_interval(TICK_S, self._tick)
        self.app_resume_signal.subscribe(self, lambda _: self.action_redraw())
        for problem in self._problems:
            self.notify(clean(problem), severity="warning", markup=False)

    def _listen(self) -> None:
        self.run_worker(self._follow(), exit_on_error=False, group="source")
        self.run_worker(self._follow_log(), exit_on_error=False, group="source")

    def _leave(self, code: int) -> None:
        if self._keeper is not None:
            self._keeper.expect_end(code)
        self.exit(code, return_code=code)

    # Readings come up.

    async def _follow(self) -> None:
        """Follow the source for ever; a fault of the source is shown as a lost link and tried again."""
        while True:
            try:
                await self._follow_once()
                reason = "the stream ended"
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
            self._store.apply(LinkLost(reason=clean(reason)), self._monotonic())
            self._soon()
            await asyncio.sleep(RETRY_S)

    async def _follow_once(self) -> None:
        async for item in self._source.stream():
            self._store.apply(item, self._monotonic())
            self._soon()
            if self.view.link.state is LinkState.LOST:
                self._filled = False
            elif self.view.snapshot is not None and not self._filled:
                self._filled = True
                self.run_worker(self._prefill(), exit_on_error=False, group="source")

    async def _prefill(self) -> None:
        try:
            points = await self._source.history(HISTORY_S)
        except Exception as error:
            self._store.note(f"no history: {error}", self._monotonic())
            return
        self._store.prefill(points, self._monotonic())
        self._soon()

    async def _follow_log(self) -> None:
        while True:
            if self.view.link.state is LinkState.UP and self.screen is self._main:
                try:
                    await self._read_log()
                except Exception:
                    # The link's own state says what is wrong; the next second tries again.
                    self._log_next = None
            await asyncio.sleep(LOG_POLL_S)

    async def _read_log(self) -> None:
        if self._log_next is None:
            page = await self._source.logs(tail=LOG_BATCH)
        else:
            page = await self._source.logs(start=self._log_next, limit=LOG_BATCH)
            if page.run != self._log_run or len(page.lines) == LOG_BATCH:
                # Far behind, or a new run: the tail is what the panel shows.
                page = await self._source.logs(tail=LOG_BATCH)
        self._log_run, self._log_next = page.run, page.next_number
        if page.lines:
            self._store.add_log(page.lines, self._monotonic())
            self._soon()

    def _tick(self) -> None:
        now = self._monotonic()
        if self.view.snapshot is None or now - self.view.now >= TICK_S * 0.9:
            self._store.tick(now)
            self._soon()

    def _soon(self) -> None:
        """Paint once for everything that arrives within a moment."""
        self._painted = False
        if self._settling is None:
            self._settling = asyncio.get_running_loop().call_later(SETTLE_S, self._paint)

    def _paint(self) -> None:
        self._settling = None
        if not self._running or not self._main.is_attached:
            return
        self._painted = True
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
        view = self._store.tick(self._monotonic())
        if self.screen is self._main or isinstance(self.screen, ModalScreen):
            self._main.show(view)
        if view.asking or (view.pending and not view.pending.state.is_final):
            self._count_up()

    def _count_up(self) -> None:
        """While a flip is under way its milliseconds move."""
        if self._counting is None:
            self._counting = asyncio.get_running_loop().call_later(PENDING_TICK_S, self._counted)

    def _counted(self) -> None:
        self._counting = None
        self._soon()

    # Commands go down.

    def on_key(self, event: events.Key) -> None:
        """Mode keys depend on the running profile, so they are looked up and not bound."""
        if self.screen is not self._main or self.view.snapshot is None:
            return
        keys = mode_keys([m.mode for m in self.view.snapshot.speculation.modes])
        if mode := keys.get(event.key):
            event.stop()
            self.flip(mode)

    def flip(self, mode: str) -> None:
        if self._store.ask(mode, self._monotonic()) is None:
            self.run_worker(self._flip(mode), exit_on_error=False, group="command")
        self._soon()

    async def _flip(self, mode: str) -> None:
        try:
            accepted = await self._source.set_mode(mode)
        except SpecctlError as error:
            self._store.refused(mode, str(error), self._monotonic())
        except Exception as error:
            # Whatever broke: the operator must learn it, and the next key must work.
            self._store.refused(mode, f"{type(error).__name__}: {error}", self._monotonic())
        else:
            self._store.accepted(mode, accepted.epoch, self._monotonic())
        self._soon()

    def _allowed(self, action: Action) -> bool:
        why = refusal(action, self.view)
        if why is not None:
            self._store.note(f"{action.label}: {why}", self._monotonic())
            self._soon()
        return why is None

    def _command(self, what: str, call: Callable[[], Awaitable[Accepted]]) -> None:
        async def run() -> None:
            try:
                accepted = await call()
            except Exception as error:
                self._store.note(f"{what}: {error}", self._monotonic())
            else:
                text = f"{what}: {accepted.message}" if accepted.message else f"{what}: accepted"
                self._store.note(text, self._monotonic(), bad=False)
            self._soon()

        self.run_worker(run(), exit_on_error=False, group="command")

    def action_detach(self) -> None:
        self._leave(0)

    async def action_quit(self) -> None:
        self._leave(0)

    def action_help(self) -> None:
        from specctl.tui.screens.help import HelpScreen

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.view, self._glyphs), self._back)

    def action_logs(self) -> None:
        from specctl.tui.screens.logs import LogScreen

        if not isinstance(self.screen, LogScreen):
            self.push_screen(LogScreen(self._source, self._glyphs), self._back)

    def _back(self, _result: object) -> None:
        self._soon()

    def action_note(self) -> None:
        from specctl.tui.screens.modals import NoteScreen

        def done(text: str | None) -> None:
            if text:
                self._command("note", lambda: self._source.note(text))

        if self._allowed(BY_ID["note"]):
            self.push_screen(NoteScreen(), done)

    def action_stop(self) -> None:
        self._confirm(BY_ID["stop"], "Stop the server?", "Stop", self._source.stop)

    def action_restart(self) -> None:
        self._confirm(BY_ID["restart"], "Restart the server?", "Restart", self._source.restart)

    def _confirm(self, action: Action, title: str, verb: str, call: Callable[[], Awaitable[Accepted]]) -> None:
        from specctl.tui.screens.modals import ConfirmScreen

        def done(yes: bool | None) -> None:
            if yes and self._allowed(action):
                self._command(action.label, call)

        if self._allowed(action):
            self.push_screen(ConfirmScreen(title, consequences(self.view, verb), verb), done)

    def action_window(self) -> None:
        self._store.next_window(self._monotonic())
        self._soon()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: flips, every action, every theme."""
        for name in key_of_mode(self.view):
            why = self.view.mode_refusal(name)
            text = f"not now: {clean(why)}" if why else f"flip the running server to {name}"
            yield SystemCommand(f"mode: {name}", text, lambda name=name: self.flip(name))
        for action in ACTIONS:
            if action.in_palette:
                why = refusal(action, self.view)
                text = f"not now: {clean(why)}" if why else action.help
                yield SystemCommand(f"{action.label}: {action.help}", text, getattr(self, f"action_{action.id}"))
        for name in self.available_themes:
            if name in self._theme_names():
                yield SystemCommand(
                    f"theme: {name}", "colours of this console", lambda name=name: self._use_theme(name)
                )

    def _theme_names(self) -> set[str]:
        return {theme.name for theme in themes.load_themes(self._environ)[0]}

    def _use_theme(self, name: str) -> None:
        self.theme = name


def consequences(view: View, verb: str) -> list[str]:
    """What stopping means now, in words: who is served, and what follows."""
    assert view.snapshot is not None
    server, engine = view.snapshot.server, view.snapshot.engine
    name = clean(server.model or server.profile or "the server").rstrip("/").rsplit("/", 1)[-1]
    lines = [f"{name}, run {'-' if server.run is None else server.run}, {server.state}"]
    running, queued = engine.running.value, engine.queued.value
    if running is None:
        lines.append("How many requests it serves is not known.")
    else:
        lines.append(f"It serves {running:.0f} requests now, {queued or 0:.0f} wait.")
    lines.append("They may finish for as long as the profile's drain time says; the rest is cut off.")
    if verb == "Restart":
        lines.append("Then the same profile starts again; until it is READY nothing is served.")
    return lines
