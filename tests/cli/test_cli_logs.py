import json
from datetime import datetime

import pytest

from client.contract_daemon import ContractDaemon
from specctl.cli.commands.logs import parse_since
from specctl.core.errors import UsageError
from specctl.core.events import LogLine

NOW = datetime.fromisoformat("2026-03-04T12:00:00+00:00")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10m", "2026-03-04T11:50:00+00:00"),
        ("1.5h", "2026-03-04T10:30:00+00:00"),
        ("2d", "2026-03-02T12:00:00+00:00"),
        ("11:59", "2026-03-04T11:59:00+00:00"),
        ("12:00:01", "2026-03-03T12:00:01+00:00"),
        ("2026-03-04T01:02:03+00:00", "2026-03-04T01:02:03+00:00"),
    ],
)
def test_since_reads_ages_clock_times_and_iso(text: str, expected: str) -> None:
    assert parse_since(text, NOW) == datetime.fromisoformat(expected).timestamp()


@pytest.mark.parametrize("text", ["", "10", "m", "25:00", "-5m", "now"])
def test_since_refuses_the_rest(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time"):
        parse_since(text, NOW)


def test_tail_grep_and_json(daemon: ContractDaemon, specctl) -> None:
    assert specctl("logs", "--tail", "2").out == "line 8\nline 9\n"
    assert specctl("logs", "--grep", "7").out == "line 7\n"
    lines = [json.loads(line) for line in specctl("logs", "--tail", "2", "--json").out.splitlines()]
    assert [line["number"] for line in lines] == [8, 9]
    assert specctl("logs").out.count("\n") == 10


def test_since_reads_every_page_and_keeps_lines_without_a_time(daemon: ContractDaemon, specctl) -> None:
    now = datetime.now().timestamp()
    daemon.log_lines = [
        *(LogLine(run=3, number=n, text=f"old {n}", at=now - 3600) for n in range(1, 2501)),
        LogLine(run=3, number=2501, text="of an old line"),
        LogLine(run=3, number=2502, text="new", at=now - 5),
        LogLine(run=3, number=2503, text="  of a new line"),
    ]
    assert specctl("logs", "--since", "1m").out == "new\n  of a new line\n"


def test_follow_goes_on_where_it_stopped(daemon: ContractDaemon, spawn) -> None:
    process = spawn("logs", "-f", "--tail", "1")
    assert process.stdout.readline() == "line 9\n"
    daemon.log_lines.append(LogLine(run=3, number=10, text="line 10"))
    assert process.stdout.readline() == "line 10\n"
    process.kill()
    process.communicate()


def test_a_pipe_gets_the_line_as_it_is(daemon: ContractDaemon, specctl) -> None:
    daemon.log_lines = [LogLine(run=3, number=1, text="\x1b[33mwarn\x1b[0m")]
    assert specctl("logs").out == "\x1b[33mwarn\x1b[0m\n"
