"""Commands with the real daemon as another process. No engine is needed: its profiles fail before a start."""

import json
import os
from pathlib import Path

import pytest

from specctl.cli.spawn import live_daemon, start_daemon
from specctl.client.blocking import Client
from specctl.config.paths import paths
from specctl.core.errors import NoDaemon


@pytest.fixture
def real_daemon(home: Path, specctl):
    where = paths()
    snapshot, is_ours = start_daemon(where)
    assert is_ours
    yield where
    if live_daemon(Client(where.socket)) is not None:
        assert specctl("down").code == 0
    assert (
        not Path(f"/proc/{snapshot.daemon.pid}/cmdline").exists()
        or not Path(f"/proc/{snapshot.daemon.pid}/cmdline").read_bytes()
    )


def test_the_real_daemon_speaks_the_contract(real_daemon, specctl) -> None:
    assert json.loads(specctl("status", "--json").out)["server"]["state"] == "STOPPED"
    assert "server   STOPPED" in specctl("status").out
    assert specctl("note", "hello").code == 0
    events = Client(real_daemon.socket).events().events
    assert [e.message for e in events if e.kind == "note"] == ["hello"]
    assert specctl("logs") == (0, "", "")
    assert specctl("mode", "chain").code == 4
    assert specctl("stop").code == 0
    assert specctl("restart").code == 4
    assert Client(real_daemon.socket).history(60).points is not None
    assert start_daemon(real_daemon)[1] is False, "a second daemon gives way to the first"


def test_a_refused_start_leaves_no_daemon(home: Path, specctl) -> None:
    done = specctl("up", "demo-cpu", "--detach", "--set", f"engine.python={home}/none/python")
    assert done.code == 4
    assert "does not exist" in done.err
    assert specctl("status").code == 3


def test_a_refused_start_keeps_a_daemon_that_was_there(real_daemon, home: Path, specctl) -> None:
    assert specctl("up", "demo-cpu", "--detach", "--set", f"engine.python={home}/none/python").code == 4
    assert specctl("status").code == 0


def test_a_daemon_that_cannot_start_is_told_with_its_last_line(home: Path) -> None:
    (home / "run").mkdir()
    os.chmod(home / "run", 0o755)
    with pytest.raises(NoDaemon, match="open to other users") as found:
        start_daemon(paths())
    assert str(home / "state" / "daemon.log") in str(found.value)
