import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from client.contract_daemon import ContractDaemon
from specctl.cli.commands import status as status_module
from specctl.core.events import LogLine


@pytest.mark.parametrize("words", [["status"], ["mode", "off"], ["logs"], ["stop"], ["restart"], ["note", "x"], []])
def test_without_a_daemon_one_line_and_code_3(specctl, home: Path, words: list[str]) -> None:
    done = specctl(*words)
    socket = home / "run" / "specctld.sock"
    assert done == (3, "", f"specctl: no daemon runs at {socket}. Start one with `specctl up PROFILE`\n")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["statsu"], "No such command"),
        (["status", "--bogus"], "Run `specctl status --help`"),
        (["mode", "a", "b"], "unexpected extra argument"),
        (["mode", "--timeout", "soon"], "--timeout"),
        (["mode", "--timeout", "0"], "--timeout"),
        (["up"], "PROFILE"),
        (["up", "demo-cpu", "--wait", "LATER"], "--wait 'LATER' is not one of READY, STARTING, none"),
        (["up", "demo-cpu", "--set", "novalue"], "--set 'novalue' has no key=value"),
        (["up", "no-such-profile"], "no profile is called 'no-such-profile'"),
        (["logs", "--since", "yesterdayish"], "--since 'yesterdayish' is not a time"),
        (["plan", "demo-cpu", "--on", "moon"], "--on 'moon' is not a launcher"),
        (["engine", "install"], "Add --cpu"),
        (["status", "--socket", "/" + "x" * 120], "the socket path"),
        (["stop", "--drain", "nan"], "--drain"),
        (["stop", "--drain", "inf"], "--drain"),
        (["mode", "off", "--wait", "--timeout", "nan"], "--timeout"),
        (["mode", "\udcff"], "the argument '\\udcff' is not valid text"),
        (["note", "a\udcffb"], "the argument 'a\\udcffb' is not valid text"),
    ],
)
def test_mistakes_are_one_line_and_code_2(specctl, home: Path, words: list[str], text: str) -> None:
    done = specctl(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("specctl: ")
    assert done.err.count("\n") == 1
    assert text in done.err
    assert not (home / "run").exists(), "a mistake starts no daemon"


def test_an_unexpected_error_is_one_line_with_a_report(specctl, home: Path, monkeypatch) -> None:
    def broken(**_):
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(status_module, "status", broken)
    done = specctl("status")
    assert (done.code, done.out) == (1, "")
    assert done.err.count("\n") == 1
    (report,) = (home / "state").glob("traceback-*.txt")
    assert str(report) in done.err
    assert "RuntimeError: two" in report.read_text()


def test_an_unexpected_error_without_a_place_to_report_it(specctl, home: Path, monkeypatch) -> None:
    (home / "state").write_text("a file where the folder should be")
    monkeypatch.setattr(status_module, "status", lambda **_: 1 / 0)
    done = specctl("status")
    assert done.code == 1
    assert "ZeroDivisionError" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("words", [["status", "--watch"], ["logs", "-f"], ["mode", "off", "--wait"]])
def test_signals_end_a_command_with_their_code_and_no_traceback(
    daemon: ContractDaemon, spawn, words: list[str], number: int, code: int
) -> None:
    process = spawn(*words)
    with daemon.changed:
        waits = daemon.changed.wait_for
        assert waits(lambda: daemon.streams or len(daemon.requests) > 1 or words[0] == "logs", 60)
    if words[0] == "logs":
        process.stdout.readline()
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (code, "")


def test_a_reader_that_leaves_is_no_error(daemon: ContractDaemon, spawn) -> None:
    daemon.log_lines = [LogLine(run=3, number=n, text="x" * 500) for n in range(1, 3000)]
    process = spawn("logs", "--tail", "2999")
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize("words", [["status"], ["status", "--json"], ["profiles", "list"], ["--help"]])
def test_output_that_is_full_is_one_line(daemon: ContractDaemon, home: Path, words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "specctl.cli.main", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("specctl: standard output cannot be written: No space left on device")
    assert done.stderr.count("\n") == 1
    assert not list((home / "state").glob("traceback-*"))


@pytest.mark.parametrize("closed", [">&-", "<&- >&-", "<&- >&- 2>&-", "2>&-"])
def test_closed_standard_streams_are_no_error(daemon: ContractDaemon, home: Path, closed: str) -> None:
    script = f"{shlex.quote(sys.executable)} -m specctl.cli.main status {closed}"
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert not list((home / "state").glob("traceback-*"))


def test_help_needs_no_daemon_and_has_no_control_codes(specctl) -> None:
    done = specctl("--help")
    assert done.code == 0
    assert "status" in done.out
    assert "\x1b" not in done.out
