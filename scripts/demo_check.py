"""What `scripts/demo --check` runs: the operator's main job without a terminal, on the real engine, with proof.

Starts the demo profile, streams requests, flips tree -> chain -> off -> tree while they stream, reads every flip back,
compares greedy text, stops everything and looks for what is left. Prints one JSON summary; exit 0 only when all holds.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from specctl_demo import prompts

SPECCTL = str(Path(sys.executable).with_name("specctl"))
STREAMS = 4
TOKENS = 192
FLIPS = ("chain", "off", "tree")


class CheckFailedError(Exception):
    """What did not hold, in one line."""


def say(text: str) -> None:
    print(f"[{time.monotonic() - STARTED:5.1f}s] {text}", file=sys.stderr, flush=True)


def specctl(*words: str, ok: tuple[int, ...] = (0,)) -> str:
    """Run one command; its stdout. Its messages go through to the reader."""
    done = subprocess.run([SPECCTL, *words], stdout=subprocess.PIPE, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode not in ok:
        raise CheckFailedError(f"`specctl {' '.join(words)}` exited {done.returncode}")
    return done.stdout


def specctl_json(*words: str) -> Any:
    return json.loads(specctl(*words, "--json"))


async def stream(client: httpx.AsyncClient, url: str, prompt: str, started: asyncio.Event) -> list[int]:
    """Output tokens of one greedy streamed request; sets `started` at its first token."""
    body = {
        "text": prompt,
        "stream": True,
        "sampling_params": {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True},
    }
    tokens: list[int] = []
    async with client.stream("POST", f"{url}/generate", json=body) as reply:
        reply.raise_for_status()
        async for line in reply.aiter_lines():
            if line.startswith("data: {"):
                tokens = json.loads(line[6:])["output_ids"]
                started.set()
    if len(tokens) != TOKENS:
        raise CheckFailedError(f"a request came back with {len(tokens)} tokens of {TOKENS}")
    return tokens


async def generate(url: str, texts: list[str], streams: int) -> list[list[int]]:
    gate = asyncio.Semaphore(streams)

    async def one(client: httpx.AsyncClient, text: str) -> list[int]:
        async with gate:
            return await stream(client, url, text, asyncio.Event())

    async with httpx.AsyncClient(timeout=300) as client:
        return await asyncio.gather(*(one(client, text) for text in texts))


async def flip(mode: str) -> dict[str, Any]:
    words = ("mode", mode, "--wait", "--timeout", "60", "--reason", "demo check")
    record: dict[str, Any] = await asyncio.to_thread(specctl_json, *words)
    say(f"flip to {mode}: {record['state']}, {record['latency_ms']} ms")
    return record


async def flips_while_streaming(url: str, texts: list[str]) -> tuple[list[dict[str, Any]], list[list[int]]]:
    """Keep STREAMS requests running until every flip is confirmed; the flips, and one result per text."""
    results: dict[str, list[int]] = {}
    done = asyncio.Event()
    started = asyncio.Event()

    async def worker(client: httpx.AsyncClient, mine: list[str]) -> None:
        while True:
            for text in mine:
                tokens = await stream(client, url, text, started)
                if results.setdefault(text, tokens) != tokens:
                    raise CheckFailedError("the same prompt gave two different greedy texts during the flips")
            if done.is_set():
                return

    async with httpx.AsyncClient(timeout=300) as client, asyncio.TaskGroup() as group:
        for index in range(STREAMS):
            group.create_task(worker(client, texts[index::STREAMS]))
        await started.wait()
        # The daemon looks once a second; a flip that it takes for one of an idle server would carry no latency.
        await asyncio.sleep(2.0)
        flips = []
        for mode in FLIPS:
            flips.append(await flip(mode))
            await asyncio.sleep(1.5)
        done.set()
    return flips, [results[text] for text in texts]


def texts_for_check() -> list[str]:
    families = prompts()
    return [text for name in ("low", "medium", "high") for text in families[name][:4]]


def check_flips(flips: list[dict[str, Any]]) -> None:
    for wanted, record in zip(FLIPS, flips, strict=True):
        if record["state"] != "confirmed" or record["to_mode"] != wanted:
            raise CheckFailedError(f"flip to {wanted} was not confirmed under load: {record}")


def leftovers() -> list[str]:
    """Processes that carry our marker, and our socket: what a stop must not leave."""
    home = os.environ["SPECCTL_HOME"]
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        # Every process of a run inherits the folder it reports to; another checkout's servers have another one.
        ours = any(entry.startswith(f"SPECCTL_STATUS_DIR={home}/".encode()) for entry in environment)
        daemon = "specctl.daemon" in command and f"SPECCTL_HOME={home}".encode() in environment
        if (ours or daemon) and folder.name != str(os.getpid()):
            found.append(f"pid {folder.name}: {command[:80]}")
    found += [str(path) for path in Path(home).rglob("*.sock")]
    return found


def run(summary: dict[str, Any]) -> None:
    began = time.monotonic()
    specctl("up", "demo-cpu", "--detach", "--wait", "READY", "--timeout", "300")
    summary["start_s"] = round(time.monotonic() - began, 1)
    snapshot = specctl_json("status")
    url = snapshot["server"]["url"]
    summary["engine"] = f"SGLang {snapshot['server']['engine_version']}"
    summary["patch"] = snapshot["speculation"]["patch_version"]
    texts = texts_for_check()
    specctl("mode", "off", "--wait")
    say(f"reference: {len(texts)} prompts x {TOKENS} greedy tokens, one at a time, without speculation")
    reference = asyncio.run(generate(url, texts, 1))
    specctl("mode", "tree", "--wait")
    say(f"flips while {STREAMS} requests stream")
    flips, texts_with_flips = asyncio.run(flips_while_streaming(url, texts))
    check_flips(flips)
    keys = ("epoch", "from_mode", "to_mode", "state", "latency_ms", "engine_ms")
    summary["flips"] = [{key: record[key] for key in keys} for record in flips]
    changed = sum(a != b for a, b in zip(reference, texts_with_flips, strict=True))
    summary["greedy_texts"] = {"compared": len(texts), "changed": changed}
    by_mode = specctl_json("status")["speculation"]["by_mode"]
    summary["by_mode"] = {
        row["mode"]: {
            "rounds": row["rounds"],
            "committed_tokens": row["committed_tokens"],
            "acceptance_length": round(row["committed_tokens"] / row["request_rounds"], 3),
        }
        for row in by_mode
        if row["request_rounds"]
    }
    if changed:
        raise CheckFailedError(f"{changed} of {len(texts)} greedy texts changed")


def main() -> int:
    os.environ.setdefault("SPECCTL_HOME", str(Path(__file__).resolve().parents[1] / ".specctl" / "home"))
    summary: dict[str, Any] = {"ok": False}
    if next(Path(os.environ["SPECCTL_HOME"]).rglob("*.sock"), None) and specctl("status", ok=(0, 3)).strip():
        print("demo: a daemon already runs for this checkout. Stop it first: scripts/demo --down", file=sys.stderr)
        return 4
    try:
        run(summary)
        summary["ok"] = True
    except (CheckFailedError, httpx.HTTPError, ExceptionGroup, KeyboardInterrupt) as error:
        summary["problem"] = f"{type(error).__name__}: {error}"
        say(f"failed: {summary['problem']}")
        if isinstance(error, ExceptionGroup):
            summary["problem"] += f": {error.exceptions[0]}"
    finally:
        say("stopping everything")
        subprocess.run([SPECCTL, "down"], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=False)
        left = leftovers()
        summary["left_running"] = left
        if left:
            summary["ok"] = False
            summary.setdefault("problem", "processes or sockets are left")
    summary["seconds"] = round(time.monotonic() - STARTED, 1)
    print(json.dumps(summary, indent=2))
    return 0 if summary["ok"] else 1


STARTED = time.monotonic()

if __name__ == "__main__":
    sys.exit(main())
