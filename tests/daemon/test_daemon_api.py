"""The API over its socket: shapes, errors, the stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import httpx
import msgspec
import pytest

from faults.daemon_process import DaemonProcess
from specctl.core.api import EventPage, HistoryPage, LogPage
from specctl.core.snapshot import Snapshot


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    one = DaemonProcess(tmp_path_factory.mktemp("d") / "h", script={"running": 1})
    one.start()
    one.up()
    yield one
    one.down()


def raw(daemon: DaemonProcess, path: str) -> bytes:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(daemon.socket))) as client:
        return client.get("http://specctl" + path).content


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/snapshot", Snapshot),
        ("/v1/events", EventPage),
        ("/v1/logs?tail=5", LogPage),
        ("/v1/history?seconds=60", HistoryPage),
    ],
)
def test_replies_are_the_core_types(daemon: DaemonProcess, path: str, kind: type) -> None:
    msgspec.json.decode(raw(daemon, path), type=kind)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "says"),
    [
        ("GET", "/v1/nothing", None, 404, "GET /v1/nothing"),
        ("DELETE", "/v1/mode", None, 405, "DELETE /v1/mode"),
        ("POST", "/v1/mode", {"mod": "off"}, 422, "mode"),
        ("POST", "/v1/mode", {"mode": 7}, 422, "mode 7"),
        ("POST", "/v1/mode", {"mode": "fast"}, 422, "'fast'"),
        ("POST", "/v1/mode", {"mode": "f" * 4000}, 422, "fff... is not one of this profile's"),
        ("POST", "/v1/mode", {"mode": "off", "reason": "x" * 501}, 422, "reason: at most 500 characters"),
        ("POST", "/v1/server/start", {"profile": "fake"}, 409, "the server is READY"),
        ("POST", "/v1/server/stop", {"drain_s": -1}, 422, "drain_s -1"),
        ("POST", "/v1/notes", {"text": "  "}, 422, "text"),
        ("GET", "/v1/events?limit=x", None, 422, "limit 'x'"),
        ("GET", "/v1/logs?grep=(", None, 422, "regular expression"),
        ("GET", "/v1/logs?run=99", None, 422, "run 99 does not exist"),
        ("GET", "/v1/stream?hz=0", None, 422, "hz"),
    ],
)
def test_bad_requests_get_one_line(daemon, method, path, body, status, says) -> None:
    got, reply = daemon.ask(method, path, body)
    assert got == status
    assert set(reply) == {"error"}
    assert says in reply["error"]["message"]
    assert "\n" not in reply["error"]["message"]


def test_body_that_is_no_json_gets_one_line(daemon: DaemonProcess) -> None:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(daemon.socket))) as client:
        reply = client.post("http://specctl/v1/mode", content=b"{", headers={"content-type": "application/json"})
    assert reply.status_code == 422
    assert "\n" not in reply.json()["error"]["message"]


def stream(daemon: DaemonProcess, query: str, headers: dict[str, str] | None = None) -> Iterator[tuple[str, str, dict]]:
    """(kind, id, data) of each message."""
    with (
        httpx.Client(transport=httpx.HTTPTransport(uds=str(daemon.socket)), timeout=20) as client,
        client.stream("GET", f"http://specctl/v1/stream{query}", headers=headers) as reply,
    ):
        kind = ident = ""
        for line in reply.iter_lines():
            field, _, value = line.partition(": ")
            if field == "event":
                kind = value
            elif field == "id":
                ident = value
            elif field == "data":
                yield kind, ident, json.loads(value)
                kind = ident = ""


def test_stream_resumes_after_the_last_event_id(daemon: DaemonProcess) -> None:
    daemon.ask("POST", "/v1/notes", {"text": "one"})
    ids = []
    for kind, ident, data in stream(daemon, "?after=0"):
        if kind == "snapshot":
            assert data["last_event_id"] >= ids[-1]
            break
        assert int(ident) == data["id"]
        ids.append(data["id"])
    assert ids == list(range(1, ids[-1] + 1))
    daemon.ask("POST", "/v1/notes", {"text": "two"})
    kind, _, data = next(stream(daemon, "", {"Last-Event-ID": str(ids[-1])}))
    assert (kind, data["id"], data["message"]) == ("event", ids[-1] + 1, "two")


def test_stream_without_after_has_only_new_events_and_snapshots_at_hz(daemon: DaemonProcess) -> None:
    messages = stream(daemon, "?hz=10")
    seen = [next(messages) for _ in range(5)]
    assert {kind for kind, _, _ in seen} == {"snapshot"}
    seqs = [data["seq"] for _, _, data in seen]
    assert seqs == sorted(set(seqs))


def test_notes_and_commands_name_who_sent_them(daemon: DaemonProcess) -> None:
    daemon.ask("POST", "/v1/notes", {"text": "load test begins", "actor": "alice\x1b[2J"})
    event = daemon.ask("GET", "/v1/events?limit=1")[1]["events"][0]
    assert event["message"] == "load test begins"
    assert event["data"]["actor"].endswith("(alice[2J)")


def test_live_numbers_reach_the_snapshot(daemon: DaemonProcess) -> None:
    snapshot = daemon.until(
        lambda: (s := daemon.ask("GET", "/v1/snapshot")[1])["engine"]["tokens_per_second"]["value"] and s, "tok/s"
    )
    assert snapshot["engine"]["acceptance_length"]["value"] == pytest.approx(2.0)
    assert snapshot["engine"]["running"]["value"] == 1
    assert snapshot["engine"]["kv_usage"]["value"] == 0.25
    assert snapshot["host"]["server_memory"]["value"] > 1e6
    tree = next(m for m in snapshot["speculation"]["by_mode"] if m["mode"] == "tree")
    assert tree["committed_tokens"] == 2 * tree["request_rounds"] > 0


def test_expression_that_never_ends_is_broken_off_and_the_daemon_lives(daemon: DaemonProcess) -> None:
    """Two repeats inside each other on a long line: Python's matcher would hold the daemon for ever."""
    with (daemon.home / "state/runs/1/server.log").open("a") as log:
        log.write("a" * 5000 + "\n")
    query = urlencode({"grep": "(a+)+b", "tail": 5})
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(daemon.socket)), timeout=60) as client:
        reply = client.get(f"http://specctl/v1/logs?{query}")
    assert reply.status_code == 422
    assert "broken off" in reply.json()["error"]["message"]
    assert daemon.server["state"] == "READY"


def test_own_metrics_page_is_prometheus_text(daemon: DaemonProcess) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    families = {f.name: f for f in text_string_to_metric_families(raw(daemon, "/metrics").decode())}
    live = [s.labels["state"] for s in families["specctl_server_state"].samples if s.value == 1]
    assert live == ["READY"]


def test_openapi_schema_names_every_route(daemon: DaemonProcess) -> None:
    schema = daemon.ask("GET", "/v1/openapi.json")[1]
    routes = {f"{method.upper()} {path}" for path, methods in schema["paths"].items() for method in methods}
    assert {
        "GET /v1/snapshot",
        "GET /v1/events",
        "GET /v1/stream",
        "GET /v1/logs",
        "GET /v1/history",
        "GET /metrics",
        "POST /v1/mode",
        "POST /v1/notes",
        "POST /v1/server/start",
        "POST /v1/server/stop",
        "POST /v1/server/restart",
        "POST /v1/server/drain",
        "POST /v1/daemon/shutdown",
    } <= routes
    assert "Snapshot" in schema["components"]["schemas"]


def test_files_of_the_daemon_are_private(daemon: DaemonProcess, tmp_path: Path) -> None:
    state = daemon.home / "state"
    assert state.stat().st_mode & 0o077 == 0
    for name in ("events.jsonl", "runs/1/run.json", "runs/1/server.log"):
        assert (state / name).stat().st_mode & 0o077 == 0, name
