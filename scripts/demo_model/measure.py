#!/usr/bin/env python3
"""Measure acceptance length by grade on a running server that serves the demo model, and keep its greedy texts.

Acceptance length of a request = completion tokens / verify rounds, both as the server reports them in `meta_info`; a
grade's figure is the ratio of the sums. Standard library only.

    measure.py http://127.0.0.1:30000 --save tree.json
    measure.py http://127.0.0.1:30000 --compare tree.json     # greedy texts must be equal, token for token
"""

import argparse
import json
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "launchers"))

import specctl_demo  # noqa: E402


def rendered(grade: str, prompt: str) -> str:
    """What the server's chat template makes of a chat prompt; other prompts as they are."""
    return f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n" if grade == "chat" else prompt


def generate(url: str, prompt: str, tokens: int) -> dict[str, Any]:
    """One greedy completion of exactly `tokens` tokens: SGLang's reply with `text`, `output_ids` and `meta_info`."""
    body = {
        "text": prompt,
        "sampling_params": {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True},
    }
    request = urllib.request.Request(
        f"{url.rstrip('/')}/generate", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as reply:
        answer: dict[str, Any] = json.load(reply)
    return answer


def measure(url: str, tokens: int, streams: int) -> tuple[dict[str, float | None], dict[str, list[list[int]]]]:
    """Acceptance length by grade (None without speculation) and the output tokens of every prompt."""
    lengths: dict[str, float | None] = {}
    outputs: dict[str, list[list[int]]] = {}
    with ThreadPoolExecutor(streams) as pool:
        for grade, prompts in specctl_demo.prompts().items():
            replies = list(pool.map(lambda p, g=grade: generate(url, rendered(g, p), tokens), prompts))  # type: ignore[misc]
            rounds = sum(reply["meta_info"].get("spec_verify_ct") or 0 for reply in replies)
            made = sum(reply["meta_info"]["completion_tokens"] for reply in replies)
            lengths[grade] = made / rounds if rounds else None
            outputs[grade] = [reply["output_ids"] for reply in replies]
    return lengths, outputs


def differences(ours: dict[str, list[list[int]]], theirs: dict[str, list[list[int]]]) -> list[str]:
    """One line a prompt whose tokens differ, with the first place."""
    found = []
    for grade, rows in ours.items():
        for index, (a, b) in enumerate(zip(rows, theirs[grade], strict=True)):
            if a != b:
                place = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
                found.append(f"{grade}[{index}]: first difference at token {place}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--streams", type=int, default=1, help="requests at the same time")
    parser.add_argument("--save", type=Path, help="write the output tokens to this file")
    parser.add_argument("--compare", type=Path, help="compare the output tokens with a saved file")
    options = parser.parse_args()
    lengths, outputs = measure(options.url, options.tokens, options.streams)
    for grade, length in lengths.items():
        print(f"{grade:8} {'-' if length is None else format(length, '.2f')}")
    if options.save:
        options.save.write_text(json.dumps(outputs), encoding="utf-8")
    if options.compare:
        found = differences(outputs, json.loads(options.compare.read_text(encoding="utf-8")))
        print("\n".join(found) or f"greedy text equal in {sum(map(len, outputs.values()))} prompts")
        return 1 if found else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
