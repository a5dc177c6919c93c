"""A scriptable stand-in for a patched SGLang server: its log lines, its pages, and every way it can fail.

Run as `python fake_sglang.py PORT JSON`; JSON holds fields of Script. `POST /fake` with JSON changes them while it runs.
Used for faults only: what the real engine does is tested on the real engine.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOLD_ON = (
    "import os, signal, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "os.fork() and os._exit(0)\n"
    "os.setsid()\n"
    "os.fork() and os._exit(0)\n"
    "time.sleep(600)\n"
)


@dataclass
class Script:
    """What to do wrong. Times in seconds."""

    load_s: float = 0.2
    crash_at: str = ""  # "start", "target" or "kv": prints and exits there
    exit_code: int = 3
    exit_after_s: float = 0.0  # exits with exit_code that long after it was ready
    last_words: str = "ValueError: the model does not fit"
    ignore_term: bool = False
    grandchild: str = ""  # "session": holds on in its own session; "bare": and without its environment
    flood_lines: int = 0
    flood_rate: float = 0.0  # lines a second, for ever
    long_line: int = 0  # bytes
    running: int = 0
    queued: int = 0
    wedged: bool = False
    metrics_hang_s: float = 0.0
    says: str = ""  # a line for the log, when set while it runs
    health_s: float = 0.0
    patch: str = "active"  # active, refused, absent
    flips: str = "obey"  # obey, refuse, false, never, half
    ranks: int = 1
    paused: bool = False  # /ready answers 503
    modes: list[dict[str, Any]] = field(default_factory=list)


class Engine:
    """The state behind the pages. A thread runs the rounds."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.lock = threading.Lock()
        names = [mode["name"] for mode in script.modes] or ["tree", "chain", "off"]
        self.names = names
        self.mode, self.pending = 0, None
        self.epoch = self.active_epoch = self.flips = 0
        self.refusal: dict[str, Any] | None = None
        self.tokens = 0.0
        self.counters = {name: [0, 0, 0, 0] for name in names}
        self.ready = False
        self.draining = False

    def round(self) -> None:
        with self.lock:
            script = self.script
            if script.running == 0 or script.wedged:
                return
            if self.pending is not None and script.flips in ("obey", "half"):
                self.mode, self.active_epoch, self.pending = self.pending, self.epoch, None
                self.flips += 1
            name = self.names[self.mode]
            count = self.counters[name]
            length = 1 if name == "off" else 2
            count[0] += 1
            count[1] += script.running
            count[2] += script.running * length
            count[3] += 0 if name == "off" else script.running * 2
            self.tokens += script.running * length

    def command(self, values: dict[str, Any]) -> bool:
        with self.lock:
            epoch = values["specctl_epoch"]
            if self.script.flips in ("refuse", "false"):
                if self.script.flips == "refuse":
                    self.refusal = {"epoch": epoch, "reason": "the draft has no state for this mode"}
                return self.script.flips == "refuse"
            if epoch <= self.epoch:
                return True
            self.epoch, self.pending = epoch, values["specctl_mode"]
            return True

    def read_back(self) -> dict[str, Any]:
        with self.lock:
            return {
                "patch": "0.0-fake",
                "mode": self.names[self.mode],
                "mode_id": self.mode,
                "epoch": self.epoch,
                "active_epoch": self.active_epoch,
                "pending": None if self.pending is None else self.names[self.pending],
                "cause": "operator",
                "flips": self.flips,
                "refusal": self.refusal,
                "rank": 0,
                "tp_size": self.script.ranks,
                "engine_ms": 1.5,
            }

    def server_info(self) -> dict[str, Any]:
        state: dict[str, Any] = {}
        if self.script.patch == "active":
            state["specctl"] = self.read_back()
        return {
            "version": "0.5.23",
            "model_path": "models/fake",
            "api_key": "secret-api-key",
            "admin_api_key": "secret-admin-key",
            "max_running_requests": 8,
            "internal_states": [state],
        }

    def metrics(self) -> str:
        script = self.script
        labels = 'engine_type="unified",model_name="fake",tp_rank="0"'
        lines = [
            f'sglang:realtime_tokens_total{{{labels},mode="decode"}} {self.tokens}',
            f"sglang:num_running_reqs{{{labels}}} {float(script.running)}",
            f"sglang:num_queue_reqs{{{labels}}} {float(script.queued)}",
            f"sglang:token_usage{{{labels}}} 0.25",
        ]
        if script.patch == "active":
            with self.lock:
                for name, values in self.counters.items():
                    for metric, value in zip(
                        ("rounds", "request_rounds", "committed_tokens", "drafted_tokens"), values, strict=True
                    ):
                        lines.append(f'specctl_{metric}_total{{mode="{name}",tp_rank="0",dp_rank="0"}} {float(value)}')
                for rank in range(script.ranks):
                    behind = script.flips == "half" and rank > 0
                    place = f'tp_rank="{rank}",dp_rank="0"'
                    lines.append(f"specctl_active_epoch{{{place}}} {0.0 if behind else float(self.active_epoch)}")
                    for index, name in enumerate(self.names):
                        live = float(index == (0 if behind else self.mode))
                        lines.append(f'specctl_active_mode{{mode="{name}",{place}}} {live}')
        return "\n".join(lines) + "\n"


def handler_for(engine: Engine) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            pass

        def reply(self, body: bytes, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            script, path = engine.script, self.path.partition("?")[0]
            if path == "/ready":
                self.reply(b"", 200 if engine.ready and not script.paused and not engine.draining else 503)
            elif path == "/health":
                time.sleep(script.health_s)
                self.reply(b"")
            elif path == "/metrics":
                time.sleep(script.metrics_hang_s)
                self.reply(engine.metrics().encode())
            elif path == "/server_info":
                if script.wedged:
                    time.sleep(30)
                self.reply(json.dumps(engine.server_info()).encode())
            elif path == "/v1/loads":
                self.reply(json.dumps({"loads": [{"num_running_reqs": script.running}]}).encode())
            else:
                self.reply(b"", 404)

        def do_POST(self) -> None:
            values = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            if self.path == "/fake":
                self.reply(b"{}")
                self.wfile.flush()
                for name, value in values.items():
                    setattr(engine.script, name, value)
                if engine.script.says:
                    print(engine.script.says, flush=True)
                    engine.script.says = ""
            elif self.path == "/set_internal_state":
                self.reply(json.dumps([engine.command(values["server_args"])]).encode())
            else:
                self.reply(b"", 404)

    return Handler


def say(text: str) -> None:
    print(time.strftime("[%Y-%m-%d %H:%M:%S] ") + text, flush=True)


def load(engine: Engine) -> None:
    script = engine.script
    steps = (
        ("start", "server_args={'model_path': 'models/fake'}"),
        ("target", "Load weight begin. avail mem=21.57 GB"),
        ("", "Load weight end. elapsed=0.05 s, type=LlamaForCausalLM, avail mem=21.57 GB, mem usage=0.00 GB."),
        ("draft", "Load weight begin. avail mem=21.57 GB"),
        ("kv", "KV Cache is allocated. dtype: torch.float32, #tokens: 20000, K size: 0.02 GB, V size: 0.02 GB"),
        ("graphs", "Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=16, avail mem=21.5 GB"),
    )
    for name, line in steps:
        say(line)
        if name and name == script.crash_at:
            print(script.last_words, end="", flush=True)
            os._exit(script.exit_code)
        time.sleep(script.load_s / len(steps))
    if script.long_line:
        print("x" * script.long_line, flush=True)
    for number in range(script.flood_lines):
        print(f"flood {number}")
    sys.stdout.flush()
    engine.ready = True
    say("The server is fired up and ready to roll!")


def misbehave_later(engine: Engine) -> None:
    script = engine.script
    if script.exit_after_s:
        time.sleep(script.exit_after_s)
        print(script.last_words, end="", flush=True)
        os._exit(script.exit_code)
    number = 0
    while script.flood_rate:
        for _ in range(max(1, int(script.flood_rate / 50))):
            number += 1
            print(f"flood {number} " + "y" * 60)
        sys.stdout.flush()
        time.sleep(0.02)


def write_status(script: Script) -> None:
    folder = os.environ.get("SPECCTL_STATUS_DIR")
    if not folder or script.patch == "absent":
        return
    os.makedirs(folder, exist_ok=True)
    body = {
        "status": script.patch,
        "reason": "signature of create_worker differs" if script.patch == "refused" else None,
    }
    with open(os.path.join(folder, f"patch-{os.getpid()}.json"), "w") as file:
        json.dump(body, file)


def main() -> None:
    script = Script(**json.loads(sys.argv[2]))
    engine = Engine(script)

    def on_term(_signum: int, _frame: Any) -> None:
        if not script.ignore_term:
            engine.draining = True

    signal.signal(signal.SIGTERM, on_term)
    if script.grandchild:
        env = dict(os.environ) if script.grandchild == "session" else {"PATH": os.environ.get("PATH", "")}
        subprocess.run([sys.executable, "-c", HOLD_ON], env=env, check=True)
    write_status(script)
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), handler_for(engine))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    loader = threading.Thread(target=load, args=(engine,), daemon=True)
    loader.start()
    later = False
    while True:
        engine.round()
        time.sleep(0.01)
        if engine.draining and script.running == 0:
            print("bye", flush=True)
            os._exit(0)
        if engine.ready and not later:
            later = True
            threading.Thread(target=misbehave_later, args=(engine,), daemon=True).start()


if __name__ == "__main__":
    main()
