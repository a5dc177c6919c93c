"""The help screen's text: every action, and what every number means."""

from __future__ import annotations

from specctl.tui.actions import ACTIONS, key_of_mode
from specctl.tui.text import EMPTY, Line, Role, Span, cell, wrap
from specctl.tui.views.frame import Frame, header
from specctl.tui.views.numbers import NUMBERS

_WORDS: tuple[tuple[str, str], ...] = (
    ("mode", "what the engine does each round: draft steps/branches a step/tokens verified, for example tree 2/4/16"),
    ("[TREE]", "the live mode, read back from the engine; (chain 112 ms) is a flip under way, with its age"),
    ("epoch e41", "number of the flip command; it only grows, so that two consoles cannot confuse their flips"),
    ("latency", "command received by the daemon until every rank was read back in the new mode"),
    ("engine", "command received by the engine's rank 0 until its first round in the new mode"),
    ("ranks 8/8", "processes of the engine that were read back in the mode, of all"),
    ("- (a dash)", "not known, or not defined now; never zero"),
    ("12s old", "the number was true so long ago; a number without an age is at most 3 s old"),
    ("charts", "both share one time axis; letters mark flips to a mode; a hole means that nothing was known"),
    ("by mode", "counters and L since this server started; tok/s of the live mode, a dash for the others"),
    ("GPU note", "why the GPU slows itself down, processes on it that are not the server's, or why it was lost"),
    ("rounds", "verify forwards of the running batch; in off, plain decodes"),
)


def _entry(frame: Frame, left: str, text: str, role: Role) -> list[Line]:
    width = max(20, frame.width - 19)
    return [
        (Span(" "), cell(left if not index else "", 16, role), Span(part))
        for index, part in enumerate(wrap(frame.glyphs.text(text), width))
    ]


def help_lines(frame: Frame) -> list[Line]:
    lines: list[Line] = [header(frame, "keys")]
    for name, key in key_of_mode(frame.view).items():
        why = frame.view.mode_refusal(name)
        text = f"flip the running server to {name}" + (f" (not now: {frame.foreign(why)})" if why else "")
        lines += _entry(frame, key, text, Role.KEY)
    for action in ACTIONS:
        lines += _entry(frame, action.shown_key, action.help, Role.KEY)
    lines += [EMPTY, header(frame, "numbers")]
    for number in NUMBERS:
        lines += _entry(frame, number.label, number.meaning, Role.STRONG)
    lines += [EMPTY, header(frame, "words")]
    for word, meaning in _WORDS:
        lines += _entry(frame, word, meaning, Role.STRONG)
    if frame.snapshot is not None:
        server, daemon = frame.snapshot.server, frame.snapshot.daemon
        lines += [EMPTY, header(frame, "this server")]
        rows = (
            ("model", server.model), ("draft", server.draft), ("profile", server.profile), ("url", server.url),
            ("engine", server.engine_version), ("pid", server.pid), ("run folder", daemon.data_dir),
            ("daemon", f"{daemon.version}, pid {daemon.pid}, at {daemon.host}"), ("socket", frame.view.socket),
        )  # fmt: skip
        for title, value in rows:
            lines += _entry(frame, title, frame.foreign(str(value)) if value not in (None, "") else "-", Role.STRONG)
    return lines
