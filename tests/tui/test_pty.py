"""The console as a real process in a real pseudo-terminal: what it leaves behind, however it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from terminal import PtyProcess

CHILD = Path(__file__).parent / "pty_child.py"
ENV = {
    **{k: v for k, v in os.environ.items() if k in ("PATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH")},
    "TERM": "xterm-256color",
    "COLORTERM": "truecolor",
    "LANG": "C.UTF-8",
    "HOME": "/nonexistent",
    "TZ": "UTC",
}
Start = Callable[..., PtyProcess]


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[PtyProcess] = []

    def run(*args: str, size: tuple[int, int] = (80, 24), **env: str) -> PtyProcess:
        process = PtyProcess([sys.executable, str(CHILD), *args], {**ENV, **env}, size)
        running.append(process)
        return process

    yield run
    for process in running:
        process.close()


def drawn(process: PtyProcess) -> None:
    process.until(lambda: "[TREE" in process.text and "detach" in process.text)


def test_q_leaves_with_0_and_restores_the_terminal(start: Start) -> None:
    process = start()
    drawn(process)
    process.send(b"q")
    assert process.wait() == 0
    assert process.restored() == []
    assert b"daemon and server keep running" in process.output


def test_q_leaves_although_everything_hangs(start: Start) -> None:
    process = start("--hung")
    drawn(process)
    process.send(b"c")
    process.until(lambda: "requested" in process.text)
    process.send(b"q")
    assert process.wait() == 0
    assert process.restored() == []


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGQUIT, 131)]
)
def test_signals_restore_the_terminal(start: Start, number: signal.Signals, code: int) -> None:
    process = start()
    drawn(process)
    process.process.send_signal(number)
    assert process.wait() == code
    assert process.restored() == []


def test_a_signal_ends_it_although_everything_hangs(start: Start) -> None:
    process = start("--hung")
    drawn(process)
    process.send(b"c")
    process.process.send_signal(signal.SIGTERM)
    assert process.wait() == 143
    assert process.restored() == []


def test_a_closed_terminal_ends_it(start: Start) -> None:
    process = start()
    drawn(process)
    os.close(process.master)
    os.close(process.slave)
    assert process.process.wait(timeout=60) == 129


def test_no_mouse_asks_for_no_mouse(start: Start) -> None:
    process = start("--no-mouse")
    drawn(process)
    assert not re.search(rb"\x1b\[\?(9|1000|1002|1003|1005|1006|1015|1016)h", process.output)
    process.send(b"q")
    assert process.wait() == 0


def test_the_mouse_is_there_by_default(start: Start) -> None:
    process = start()
    drawn(process)
    assert b"\x1b[?1000h" in process.output


def test_no_color_sends_no_colour(start: Start) -> None:
    process = start(NO_COLOR="1")
    drawn(process)
    process.send(b"?")
    process.until(lambda: "every key, and what" in process.text)
    process.send(b"q")
    process.wait()
    codes = {code for group in re.findall(rb"\x1b\[([0-9;]*)m", process.output) for code in group.split(b";")}
    coloured = {c for c in codes if c.isdigit() and (30 <= int(c) <= 38 or 40 <= int(c) <= 48 or 90 <= int(c) <= 107)}
    assert not coloured


def test_sixteen_colours_are_enough(start: Start) -> None:
    process = start(TERM="xterm", COLORTERM="")
    drawn(process)
    assert b"38;2" not in process.output
    assert b"38;5" not in process.output


def test_a_latin_1_locale_gets_ascii(start: Start) -> None:
    process = start(LANG="de_DE.ISO-8859-1", LC_ALL="de_DE.ISO-8859-1")
    drawn(process)
    assert process.output.isascii()


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (160, 48)])
def test_footer_is_the_last_line_at_every_size(start: Start, size: tuple[int, int]) -> None:
    process = start(size=size)
    drawn(process)
    assert "q detach" in process.screen.display[-1]


def test_without_a_terminal_one_line_and_2(tmp_path: Path) -> None:
    code = (
        f"from pathlib import Path; from specctl.tui import run; raise SystemExit(run(Path({str(tmp_path / 's')!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, env=ENV, timeout=60
    )
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.count(b"\n") == 1
    assert b"\x1b" not in done.stderr
