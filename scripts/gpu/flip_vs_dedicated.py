"""A patched server in each mode against a server that was started in that mode, and flips under load. Run beside a GPU.

usage: python flip_vs_dedicated.py --python ENGINE_PYTHON --out FOLDER [--backend triton] [--deadline SECONDS]

An 8B-shaped Llama with random weights and its EAGLE-3 head; acceptance is forced (`--accept`), so text means nothing and time
is that of the real kernels. Standard library only. Writes results.json and table.md into FOLDER after every server.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import http.client
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MODES = ("tree", "chain", "off")
SHAPES = {"tree": (2, 4, 16), "chain": (2, 1, 3), "off": (0, 1, 1)}
PORT = 30177
BASE = {
    "model_type": "llama",
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100000.0,
    "rope_scaling": None,
    "use_cache": True,
    "vocab_size": 49152,
    "torch_dtype": "bfloat16",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "head_dim": 128,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
}


def make_models(folder: Path, tokenizer: Path) -> tuple[Path, Path]:
    """Config folders of target and draft; weights are made by SGLang's dummy loader."""
    target, draft = folder / "llama-8b-shape", folder / "llama-8b-shape-eagle3"
    for path, extra in (
        (target, {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32}),
        (draft, {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": 32000}),
    ):
        path.mkdir(parents=True, exist_ok=True)
        (path / "config.json").write_text(json.dumps({**BASE, **extra}))
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json"):
        if (tokenizer / name).exists():
            shutil.copy(tokenizer / name, target / name)
    return target, draft


def make_overlay(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(
        ROOT / "launchers" / "specctl_engine", folder / "specctl_engine", ignore=shutil.ignore_patterns("__pycache__")
    )
    info = folder / "specctl_overlay-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: specctl-overlay\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[sglang.srt.plugins]\nspecctl = specctl_engine:activate\n")
    return folder


def call(method: str, path: str, body: Any = None, timeout: float = 120) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=timeout)
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        data = reply.read()
        if reply.status != 200:
            raise RuntimeError(f"{method} {path}: HTTP {reply.status} {data[:200]!r}")
        return json.loads(data) if data[:1] in (b"[", b"{") else data.decode(errors="replace")
    finally:
        connection.close()


def generate(index: int, tokens: int) -> int:
    sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
    text = f"[{index}] Explain how a bicycle stays upright, step by step, and what changes at low speed."
    return int(call("POST", "/generate", {"text": text, "sampling_params": sampling})["meta_info"]["completion_tokens"])


def throughput(size: int, tokens: int) -> float:
    """tok/s of `size` requests of `tokens` tokens that start together."""
    with concurrent.futures.ThreadPoolExecutor(size) as pool:
        began = time.perf_counter()
        total = sum(pool.map(lambda index: generate(index, tokens), range(size)))
        return total / (time.perf_counter() - began)


def measure(sizes: list[int], tokens: int, rounds: int) -> dict[int, list[float]]:
    out = {}
    for size in sizes:
        throughput(size, 32)
        out[size] = [round(throughput(size, tokens), 1) for _ in range(rounds)]
        print(f"    {size:4d} requests: {out[size]}", flush=True)
    return out


class Server:
    """One server process: started, waited for, stopped with its group."""

    def __init__(self, name: str, args: argparse.Namespace, flags: list[str], env: dict[str, str]) -> None:
        self.name, self.log = name, args.out / f"{name}.log"
        command = [args.python, "-m", "sglang.launch_server", "--host", "127.0.0.1", "--port", str(PORT), *flags]
        began = time.monotonic()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, **env},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/tmp",
            )
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"{name} exited {self.process.returncode} while starting")
            if time.monotonic() - began > args.start_cap:
                self.stop()
                raise RuntimeError(f"{name} not ready after {args.start_cap} s")
            try:
                call("GET", "/ready", timeout=3)
                break
            except (OSError, RuntimeError, http.client.HTTPException):
                time.sleep(0.5)
        self.start_s = round(time.monotonic() - began, 1)
        print(f"  {name} ready after {self.start_s} s", flush=True)

    def stop(self) -> None:
        for number, patience in ((signal.SIGTERM, 6), (signal.SIGKILL, 10)):
            try:
                os.killpg(self.process.pid, number)
                self.process.wait(patience)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        time.sleep(2)

    def tail(self, lines: int = 30) -> str:
        return "\n".join(line[:300] for line in self.log.read_text(errors="replace").splitlines()[-lines:])


class Flipper:
    """Commands with growing epochs, and their read-back."""

    def __init__(self) -> None:
        self.epoch = 0

    def report(self) -> dict[str, Any]:
        states = call("GET", "/server_info")["internal_states"]
        report: dict[str, Any] = states[0]["specctl"]
        return report

    def ranks(self) -> dict[str, str]:
        """Live mode and epoch of every rank, from the metrics page: the read-back has one entry a data-parallel group."""
        page = call("GET", "/metrics")
        epochs = re.findall(r'^specctl_active_epoch\{[^}]*tp_rank="(\d+)"[^}]*\} (\S+)', page, re.MULTILINE)
        modes = re.findall(
            r'^specctl_active_mode\{[^}]*mode="([^"]+)"[^}]*tp_rank="(\d+)"[^}]*\} 1\.0', page, re.MULTILINE
        )
        live = {rank: mode for mode, rank in modes}
        return {rank: f"{live.get(rank, '?')} at epoch {float(epoch):.0f}" for rank, epoch in epochs}

    def command(self, mode: str) -> int:
        self.epoch += 1
        body = {"specctl_mode": MODES.index(mode), "specctl_epoch": self.epoch, "specctl_cause": 0}
        if call("POST", "/set_internal_state", {"server_args": body}) != [True]:
            raise RuntimeError(f"flip to {mode} refused: {self.report()['refusal']}")
        return self.epoch

    def settle(self, mode: str) -> None:
        epoch = self.command(mode)
        generate(0, 8)
        report = self.report()
        if report["active_epoch"] != epoch or report["mode"] != mode:
            raise RuntimeError(f"flip to {mode} not confirmed: {report}")


def flips_under_load(flipper: Flipper, flips: int, streams: int, seconds: float) -> dict[str, Any]:
    """Up to `flips` flips among all modes while `streams` requests run; latencies of every tenth one."""
    stop, failed, done = threading.Event(), [], [0]

    def stream(index: int) -> None:
        while not stop.is_set():
            try:
                if generate(index, 400) != 400:
                    failed.append(f"stream {index}: short answer")
                done[0] += 1
            except (OSError, RuntimeError, http.client.HTTPException) as error:
                failed.append(f"stream {index}: {error}")

    chance, engine_ms, readback_ms, sent = random.Random(3), [], [], 0
    before = flipper.report()
    threads = [threading.Thread(target=stream, args=(index,)) for index in range(streams)]
    for thread in threads:
        thread.start()
    time.sleep(1.5)
    began = time.monotonic()
    mode = before["mode"]
    while sent < flips and time.monotonic() - began < seconds and not failed:
        mode = chance.choice([m for m in MODES if m != mode])
        asked = time.perf_counter()
        epoch = flipper.command(mode)
        sent += 1
        if sent % 10 == 0:
            while (report := flipper.report())["active_epoch"] < epoch:
                time.sleep(0.002)
            readback_ms.append((time.perf_counter() - asked) * 1e3)
            engine_ms.append(report["engine_ms"])
        else:
            time.sleep(chance.random() * 0.03)
    stop.set()
    for thread in threads:
        thread.join(60)
    flipper.settle(mode)
    after = flipper.report()
    call("POST", "/flush_cache")
    time.sleep(1.5)
    used = sum(row["num_used_tokens"] for row in call("GET", "/v1/loads?include=all")["loads"])
    return {
        "commands": sent,
        "flips": after["flips"] - before["flips"],
        "streams": streams,
        "requests_done": done[0],
        "failed": failed[:5],
        "engine_ms": quantiles(engine_ms),
        "read_back_ms": quantiles(readback_ms),
        "used_tokens_after": used,
        "ranks_after": flipper.ranks(),
        "seconds": round(time.monotonic() - began, 1),
        "by_mode": after["by_mode"],
    }


def quantiles(values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    ordered = sorted(values)
    pick = lambda q: round(ordered[min(len(ordered) - 1, int(q * len(ordered)))], 2)  # noqa: E731
    return {"n": len(ordered), "p50": pick(0.5), "p90": pick(0.9), "p99": pick(0.99), "max": round(ordered[-1], 2)}


def flags_of(mode: str | None, args: argparse.Namespace, models: tuple[Path, Path]) -> list[str]:
    target, draft = models
    size = str(max(args.sizes))
    flags = (
        f"--model-path {target} --load-format dummy --mem-fraction-static 0.5 --max-total-tokens 131072 --page-size 1 "
        f"--attention-backend {args.backend} --sampling-backend pytorch --grammar-backend none --disable-prefill-cuda-graph "
        f"--cuda-graph-max-bs-decode {size} --max-running-requests {size} --enable-metrics --decode-log-interval 40"
    ).split()
    if mode is not None:
        steps, topk, tokens = SHAPES[mode]
        flags += (
            f"--speculative-algorithm EAGLE3 --speculative-draft-model-path {draft} --speculative-draft-load-format dummy "
            f"--speculative-num-steps {steps} --speculative-eagle-topk {topk} --speculative-num-draft-tokens {tokens}"
        ).split()
    return [*flags, *args.extra]


def run_dedicated(name: str, args: argparse.Namespace, models: tuple[Path, Path]) -> dict[str, Any]:
    env = {"SGLANG_PLUGINS": "none", "SGLANG_SIMULATE_ACC_LEN": str(args.accept)}
    server = Server(f"dedicated-{name}", args, flags_of(None if name == "off" else name, args, models), env)
    try:
        return {"start_s": server.start_s, "tok_s": measure(args.sizes, args.tokens, args.rounds)}
    finally:
        server.stop()


def run_patched(args: argparse.Namespace, models: tuple[Path, Path], overlay: Path) -> dict[str, Any]:
    rows = [dict(zip(("name", "num_steps", "topk", "num_draft_tokens"), (m, *SHAPES[m]), strict=True)) for m in MODES]
    env = {
        "SGLANG_SIMULATE_ACC_LEN": str(args.accept),
        "SPECCTL_MODES": json.dumps(rows),
        "SPECCTL_STATUS_DIR": str(args.out / "status"),
        "PYTHONPATH": f"{overlay}:{os.environ.get('PYTHONPATH', '')}",
    }
    server = Server("patched", args, flags_of("tree", args, models), env)
    try:
        flipper = Flipper()
        result: dict[str, Any] = {"start_s": server.start_s, "states": flipper.report()["modes"], "tok_s": {}}
        for mode in MODES:
            print(f"  patched in {mode}", flush=True)
            flipper.settle(mode)
            result["tok_s"][mode] = measure(args.sizes, args.tokens, args.rounds)
        if args.flips:
            result["flips"] = flips_under_load(flipper, args.flips, args.streams, args.flip_seconds)
            print("  flips:", json.dumps({k: v for k, v in result["flips"].items() if k != "by_mode"}), flush=True)
        return result
    finally:
        server.stop()


def table(results: dict[str, Any], sizes: list[int]) -> str:
    lines = ["| tok/s (median) | " + " | ".join(f"{size}" for size in sizes) + " |", "|---" * (len(sizes) + 1) + "|"]
    median = {
        (kind, mode): {int(size): statistics.median(values) for size, values in found.items()}
        for kind, mode, found in _found(results)
    }
    for mode in MODES:
        for kind in ("dedicated", "patched"):
            if (kind, mode) in median:
                values = [f"{median[kind, mode].get(size, float('nan')):.0f}" for size in sizes]
                lines.append(f"| {mode}, {kind} | " + " | ".join(values) + " |")
        if ("dedicated", mode) in median and ("patched", mode) in median:
            ratios = [f"{median['patched', mode][size] / median['dedicated', mode][size]:.3f}" for size in sizes]
            lines.append(f"| {mode}, ratio | " + " | ".join(ratios) + " |")
    return "\n".join(lines) + "\n"


def _found(results: dict[str, Any]) -> list[tuple[str, str, dict[Any, list[float]]]]:
    out = [
        ("dedicated", m, results[f"dedicated-{m}"]["tok_s"])
        for m in MODES
        if "tok_s" in results.get(f"dedicated-{m}", {})
    ]
    patched = results.get("patched", {}).get("tok_s", {})
    return out + [("patched", mode, found) for mode, found in patched.items()]


def save(results: dict[str, Any], args: argparse.Namespace) -> None:
    (args.out / "results.json").write_text(json.dumps(results, indent=1))
    (args.out / "table.md").write_text(table(results, args.sizes))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder with a tokenizer of at most 49152 words")
    parser.add_argument("--models", type=Path, default=Path("/tmp/specctl-models"))
    parser.add_argument("--backend", default="triton")
    parser.add_argument("--accept", type=float, default=2.4, help="forced acceptance length of tree and chain")
    parser.add_argument("--sizes", type=lambda text: [int(x) for x in text.split(",")], default=[1, 8, 32, 128])
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--servers", default="patched,off,chain,tree")
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--flip-seconds", type=float, default=60)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--start-cap", type=float, default=170)
    parser.add_argument("--deadline", type=float, default=560, help="seconds after which no further server is started")
    parser.add_argument("--extra", nargs="*", default=[], help="further flags of every server")
    return parser.parse_args()


def main() -> int:
    args, began = parse(), time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    models = make_models(args.models, args.tokenizer)
    overlay = make_overlay(args.models / "overlay")
    results: dict[str, Any] = {"args": {k: str(v) for k, v in vars(args).items()}, "date": time.strftime("%Y-%m-%d")}
    for name in args.servers.split(","):
        key = name if name == "patched" else f"dedicated-{name}"
        if time.monotonic() - began > args.deadline - 90:
            results[key] = {"error": "no time left"}
            continue
        print(f"{key} at {time.monotonic() - began:.0f} s", flush=True)
        try:
            results[key] = (
                run_patched(args, models, overlay) if name == "patched" else run_dedicated(name, args, models)
            )
        except (OSError, RuntimeError, KeyError, http.client.HTTPException) as error:
            results[key] = {"error": f"{type(error).__name__}: {error}"}
            log = args.out / f"{key}.log"
            print(f"  failed: {error}", flush=True)
            if log.exists():
                wanted = re.compile(r"specctl|Error|error|Traceback|File |assert", re.IGNORECASE)
                lines = log.read_text(errors="replace").splitlines()
                print("\n".join("    " + line[:260] for line in lines if wanted.search(line))[-6000:], flush=True)
        save(results, args)
    print(table(results, args.sizes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
