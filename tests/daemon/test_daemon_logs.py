from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specctl.core.errors import UsageError
from specctl.daemon.logs import RunLog


class Writer:
    """Writes as a server does: through one O_APPEND descriptor that it never opens again."""

    def __init__(self, folder: Path) -> None:
        self.fd = os.open(folder / "server.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, text: str) -> None:
        os.write(self.fd, text.encode())


def texts(log: RunLog, **query) -> list[str]:
    return [line.text for line in log.page(**query).lines]


def test_lines_are_numbered_from_one_and_followed(tmp_path: Path) -> None:
    writer, log = Writer(tmp_path), RunLog(1, tmp_path)
    writer.write("a\nb\nc")
    assert log.follow() == [(1, "a"), (2, "b"), (3, "c")]
    page = log.page(1)
    assert [(line.number, line.text) for line in page.lines] == [(1, "a"), (2, "b")]
    assert page.next_number == 3
    writer.write("c\nd\n")
    log.refresh()
    assert texts(log, start=page.next_number) == ["cc", "d"]


def test_a_reader_takes_no_line_from_the_follower(tmp_path: Path) -> None:
    """A console that shows the log reads it between two looks of the start steps."""
    writer, log = Writer(tmp_path), RunLog(1, tmp_path)
    writer.write("a\n")
    assert log.follow() == [(1, "a")]
    writer.write("b\nc")
    log.refresh()
    assert texts(log, tail=5) == ["a", "b"]
    assert log.follow() == [(2, "b"), (3, "c")]
    assert log.follow() == []
    writer.write("c\n")
    log.refresh()
    assert log.follow() == [(3, "cc")]


def test_unfinished_last_line_counts_once_the_run_is_over(tmp_path: Path) -> None:
    writer, log = Writer(tmp_path), RunLog(1, tmp_path)
    writer.write("a\nlast words")
    log.refresh()
    assert texts(log, tail=9) == ["a"]
    log.finished = True
    assert texts(log, tail=9) == ["a", "last words"]


def test_rotation_keeps_numbers_and_the_writer_goes_on(tmp_path: Path) -> None:
    writer, log = Writer(tmp_path), RunLog(1, tmp_path, max_bytes=10, keep_files=2)
    for number in range(1, 9):
        writer.write(f"line {number}\nline {number}b\n")
        log.refresh()
        assert log.rotate_if_large()
    writer.write("end\n")
    log.refresh()
    assert sorted(p.name for p in tmp_path.glob("server.log*")) == ["server.log", "server.log.1", "server.log.2"]
    page = log.page(1)
    assert page.dropped == 12
    assert [(line.number, line.text) for line in page.lines] == [
        (13, "line 7"),
        (14, "line 7b"),
        (15, "line 8"),
        (16, "line 8b"),
        (17, "end"),
    ]


def test_reopened_log_counts_on_from_where_it_was(tmp_path: Path) -> None:
    writer, log = Writer(tmp_path), RunLog(1, tmp_path, max_bytes=10, keep_files=1)
    for number in range(5):
        writer.write(f"line {number}\nmore\n")
        log.refresh()
        log.rotate_if_large()
    writer.write("tail\n")
    log.refresh()
    again = RunLog(1, tmp_path, max_bytes=10, keep_files=1)
    again.refresh()
    assert [(x.number, x.text) for x in again.page(tail=9).lines] == [
        (x.number, x.text) for x in log.page(tail=9).lines
    ]


def test_grep_tail_and_limit(tmp_path: Path) -> None:
    writer, log = Writer(tmp_path), RunLog(1, tmp_path)
    writer.write("".join(f"{'odd' if n % 2 else 'even'} {n}\n" for n in range(1, 2001)))
    log.refresh()
    assert texts(log, grep="odd", tail=2) == ["odd 1997", "odd 1999"]
    assert texts(log, tail=0) == []
    first = log.page(1, grep="even", limit=3)
    assert [line.number for line in first.lines] == [2, 4, 6]
    assert [line.number for line in log.page(first.next_number, grep="even", limit=2).lines] == [8, 10]
    with pytest.raises(UsageError, match=r"grep '\(' is not a regular expression"):
        log.page(grep="(")


def test_foreign_bytes_are_kept_but_nul(tmp_path: Path) -> None:
    writer, log = Writer(tmp_path), RunLog(1, tmp_path)
    os.write(writer.fd, b"\x1b[31mred\x1b[0m [/bold]\x00 \xff\n")
    log.refresh()
    assert texts(log, tail=1) == ["\x1b[31mred\x1b[0m [/bold] \ufffd"]


def test_time_of_sglangs_lines(tmp_path: Path) -> None:
    writer, log = Writer(tmp_path), RunLog(1, tmp_path)
    writer.write("[2026-11-29 17:25:02 TP0] Load weight begin.\nno time\n[2026-99-99 17:25:02] broken\n")
    log.refresh()
    with_time, without, broken = log.page(1).lines
    assert with_time.at is not None
    assert without.at is None
    assert broken.at is None or isinstance(broken.at, float)


def test_full_disk_at_rotation_frees_the_log_and_counts_what_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, log = Writer(tmp_path), RunLog(1, tmp_path, max_bytes=10)
    writer.write("line one\nline two\n")
    log.refresh()
    opened = Path.open

    def full(self: Path, *args, **kwargs):
        if self.name == "server.log.1":
            raise OSError(errno.ENOSPC, "No space left on device")
        return opened(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", full)
    assert log.rotate_if_large()
    writer.write("after\n")
    log.refresh()
    page = log.page(1)
    assert page.dropped == 2
    assert [(line.number, line.text) for line in page.lines] == [(3, "after")]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.text(alphabet="ab\n", max_size=40), st.booleans()),
        max_size=25,
    )
)
def test_any_order_of_writes_and_rotations_loses_and_invents_nothing(
    tmp_path_factory: pytest.TempPathFactory, script: list[tuple[str, bool]]
) -> None:
    """Lines cut in two by a rotation count as two; every byte but the newlines is there, in order."""
    folder = tmp_path_factory.mktemp("log")
    writer, log = Writer(folder), RunLog(1, folder, max_bytes=1, keep_files=100)
    written = ""
    for text, rotate in script:
        writer.write(text)
        written += text
        log.refresh()
        if rotate:
            log.rotate_if_large()
    log.finished = True
    log.refresh()
    page = log.page(1, limit=5000)
    assert "".join(line.text for line in page.lines) == written.replace("\n", "")
    assert [line.number for line in page.lines] == list(range(1, len(page.lines) + 1))
    assert page.next_number == len(page.lines) + 1
    for start in range(1, len(page.lines) + 1, 7):
        assert [x.text for x in log.page(start).lines] == [x.text for x in page.lines[start - 1 :]]
