"""A real SGLang server on CPU for the tests: started from the demo profile's launch plan, stopped with all it started."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from engine_env import engine_python
from specctl.config.load import load_profile
from specctl.config.paths import paths
from specctl_launch.plan import make_plan, prepare

START_S = 240
MODES = ("tree", "chain", "off")
_SAMPLE = re.compile(r"^(\w[\w:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class RealServer:
    """One running server. `modes`: names in wire order. All calls block; the async ones of the tests use `url`."""

    def __init__(self, url: str, run_dir: Path, modes: tuple[str, ...]) -> None:
        self.url = url
        self.run_dir = run_dir
        self.modes = modes
        self._http = httpx.Client(base_url=url, timeout=120)
        self._epochs = itertools.count(self.specctl()["epoch"] + 1) if modes else itertools.count(1)

    def log(self) -> str:
        return (self.run_dir / "server.log").read_text(errors="replace")

    def statuses(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted((self.run_dir / "status").glob("patch-*.json"))]

    def internal_states(self) -> list[dict[str, Any]]:
        states: list[dict[str, Any]] = self._http.get("/server_info").json()["internal_states"]
        return states

    def specctl(self) -> dict[str, Any]:
        report: dict[str, Any] = self.internal_states()[0].get("specctl", {"epoch": 0})
        return report

    def command(self, **keys: Any) -> list[bool]:
        """One raw command; SGLang's answer, one entry a data-parallel group."""
        body = json.dumps({"server_args": keys})
        reply = self._http.post("/set_internal_state", content=body, headers={"content-type": "application/json"})
        answer: list[bool] = reply.raise_for_status().json()
        return answer

    def flip(self, mode: str, cause: int = 0) -> int:
        """Command a mode with the next epoch; the epoch."""
        epoch = next(self._epochs)
        number = self.modes.index(mode)
        assert self.command(specctl_mode=number, specctl_epoch=epoch, specctl_cause=cause) == [True]
        return epoch

    def metrics(self, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        """Samples of one metric by their sorted labels, ranks included."""
        found = {}
        for line in self._http.get("/metrics").text.splitlines():
            match = _SAMPLE.match(line)
            if match and match[1] == name:
                found[tuple(sorted(_LABEL.findall(match[2] or "")))] = float(match[3])
        return found

    def generate(self, text: str, tokens: int, **sampling: Any) -> dict[str, Any]:
        """One request, greedy unless told otherwise; SGLang's whole answer."""
        options = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True} | sampling
        reply = self._http.post("/generate", json={"text": text, "sampling_params": options}).raise_for_status()
        answer: dict[str, Any] = reply.json()
        return answer

    def generate_ids(self, ids: list[int], tokens: int) -> dict[str, Any]:
        """One greedy request of token ids; SGLang's whole answer."""
        options = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
        reply = self._http.post("/generate", json={"input_ids": ids, "sampling_params": options}).raise_for_status()
        answer: dict[str, Any] = reply.json()
        return answer

    def used_tokens(self) -> int:
        loads = self._http.get("/v1/loads", params={"include": "all"}).json()["loads"]
        return sum(int(row["num_used_tokens"]) for row in loads)

    def flush_cache(self) -> None:
        """Empty the prefix cache. SGLang refuses while anything still runs, so this proves that nothing does."""
        for _ in range(40):
            if self._http.post("/flush_cache").status_code == 200:
                return
            time.sleep(0.25)
        raise AssertionError("the server still holds requests after the traffic has ended")

    def close(self) -> None:
        self._http.close()


def _without_speculation(argv: tuple[str, ...]) -> list[str]:
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        if word.startswith("--speculative-"):
            next(words)
        else:
            kept.append(word)
    return kept


@contextmanager
def real_server(
    folder: Path,
    *,
    overrides: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    speculation: bool = True,
    patched: bool = True,
) -> Iterator[RealServer]:
    """Start the demo profile in `folder` and stop it. speculation=False: the same server without a draft or a patch."""
    home = paths({"SPECCTL_HOME": str(folder / "home")})
    settings = {"engine.python": json.dumps(str(engine_python()))} | dict(overrides or {})
    plan = make_plan(
        load_profile("demo-cpu", settings, home), home, run_dir=folder / "run", run_marker=f"test:{folder.name}:1"
    )
    prepare(plan)
    env = plan.environment(os.environ) | dict(environment or {})
    if not speculation or not patched:
        # The CPU operators come with the same package, so the patch is kept out by naming a version it does not know.
        env["SPECCTL_ENGINE_DISABLE"] = "1"
    argv = list(plan.argv) if speculation else _without_speculation(plan.argv)
    with (plan.run_dir / "server.log").open("wb") as log:
        process = subprocess.Popen(
            argv, env=env, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        _wait_ready(process, plan.url, plan.run_dir / "server.log")
        modes = tuple(mode.name for mode in plan.modes) if speculation and patched else ()
        server = RealServer(plan.url, plan.run_dir, modes)
        try:
            yield server
        finally:
            server.close()
    finally:
        _stop(process)


def _wait_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            if httpx.get(f"{url}/ready", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.3)
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
    raise AssertionError(f"the server did not become ready (exit {process.poll()}):\n{tail}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    for number, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 10.0)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and _group_lives(process):
            time.sleep(0.1)
    process.wait(timeout=10)


def _group_lives(process: subprocess.Popen[bytes]) -> bool:
    process.poll()
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True
