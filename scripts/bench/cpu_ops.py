#!/usr/bin/env python3
"""Times the CPU engine's operators, in microseconds a call; run it with the engine's interpreter.

    scripts/bench/cpu_ops.py [--against FOLDER]

FOLDER holds another package `sgl_kernel` with the same operators: both are timed in turns in this process, and the
ratio other / ours is printed. Figures are for comparisons on one machine.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "launchers"))

from specctl_engine.cpu.plan import plan  # noqa: E402

HEADS, KV_HEADS, DIM, POOL_LEN, LAYERS = 4, 2, 32, 4096, 4
Operators = SimpleNamespace


def load(folder: Path) -> Operators:
    """The operators of the `sgl_kernel` in `folder`; its attention as plain functions, past the dispatcher."""
    for name in [m for m in sys.modules if m.partition(".")[0] == "sgl_kernel"]:
        del sys.modules[name]
    attention: dict[str, Any] = {}
    original = torch.library.Library
    sys.path.insert(0, str(folder))
    try:
        if folder != SITE:
            torch.library.Library = lambda *_: SimpleNamespace(  # type: ignore[misc, assignment]
                define=lambda _: None, impl=lambda name, function, _: attention.update({name: function})
            )
        package = importlib.import_module("sgl_kernel")
        speculative = importlib.import_module("sgl_kernel.speculative")
    finally:
        torch.library.Library = original  # type: ignore[misc]
        sys.path.remove(str(folder))
    return SimpleNamespace(**{**vars(package), **vars(speculative), **attention})


SITE = ROOT / "launchers" / "specctl_engine" / "cpu" / "site"


class Case:
    """Inputs for one batch size and tree."""

    def __init__(self, bs: int, topk: int, steps: int, n: int, length: int) -> None:
        self.bs, self.topk, self.steps, self.n = bs, topk, steps, n
        generator = torch.Generator().manual_seed(0)
        slots = 20_000
        self.table = torch.randint(0, slots, (64, POOL_LEN), generator=generator, dtype=torch.int32)
        self.rows = torch.arange(bs)
        # Lengths lie between half and all of `length`, as those of requests do that came at different times.
        self.lengths = torch.linspace(length // 2, length, bs).long() if bs > 1 else torch.tensor([length])
        self.keys, self.values = torch.randn(2, slots, KV_HEADS, DIM, generator=generator).unbind(0)
        self.buffers = [torch.zeros(slots, KV_HEADS, DIM) for _ in range(2 * LAYERS)]
        self.pointers = torch.tensor([b.data_ptr() for b in self.buffers], dtype=torch.uint64)
        self.strides = torch.full((2 * LAYERS,), KV_HEADS * DIM * 4)
        self._tree()

    def _tree(self) -> None:
        scores = [torch.rand(self.bs, 1, self.topk)]
        parents, frontier = [torch.arange(-1, self.topk).repeat(self.bs, 1)], scores[0].squeeze(1)
        for step in range(1, self.steps):
            expanded = frontier.unsqueeze(2) * torch.rand(self.bs, self.topk, self.topk)
            best = expanded.flatten(1).topk(self.topk)
            scores.append(expanded)
            parents.append(best.indices + self.topk**2 * (step - 1) + self.topk)
            frontier = best.values
        flat = torch.cat(scores, 1).flatten(1)
        self.selected = flat.topk(self.n - 1).indices.sort().values
        self.parents = torch.cat(parents[:-1], 1)
        self.links = torch.full((3, self.bs, self.n), -1)
        self.mask = torch.ones(self.bs * self.n**2, dtype=torch.bool)
        self.positions = torch.empty(self.bs * self.n, dtype=torch.int64)
        self.tokens, self.predicted = torch.randint(0, 3, (2, self.bs, self.n))

    def decode(self, ops: Operators, rows: int) -> Callable[[], None]:
        """Decode attention of `rows` rows: the batch, or the batch's draft branches."""
        q, k, v = torch.randn(rows, HEADS, DIM), *torch.randn(2, rows, KV_HEADS, DIM)
        out, loc, repeat = torch.empty_like(q), torch.arange(rows), rows // self.bs
        lengths, indices = self.lengths.repeat_interleave(repeat), torch.arange(rows)
        return lambda: ops.decode_attention_cpu(
            q, self.keys, self.values, 1.0, 1.0, out, k, v, loc, out, self.table, indices, lengths, 0.2, 0.0, False, 0,
            None, None,
        )  # fmt: skip

    def extend(self, ops: Operators, n: int, mask: torch.Tensor | None, prefix: bool = True) -> Callable[[], None]:
        """Extend attention by n tokens a request."""
        q = torch.randn(self.bs * n, HEADS, DIM)
        out, lengths = torch.empty_like(q), self.lengths + n if prefix else torch.full((self.bs,), n)
        counts = torch.full((self.bs,), n, dtype=torch.int32)
        starts = torch.arange(0, self.bs * n, n, dtype=torch.int32)
        return lambda: ops.extend_attention_cpu(
            q, None, None, out, self.keys, self.values, 1.0, 1.0, self.table, self.rows, lengths, counts, starts, n,
            0.2, 0.0, False, 0, None, None, mask, True,
        )  # fmt: skip

    def build(self, ops: Operators) -> None:
        """Build the trees."""
        self.links.fill_(-1)
        ops.build_tree_kernel_efficient_cpu(
            self.parents, self.selected, self.lengths, self.mask, self.positions, *self.links, self.topk, self.steps,
            self.n, 1,
        )  # fmt: skip

    def operators(self, ops: Operators) -> dict[str, Callable[[], Any]]:
        """Every operator as a call without arguments."""
        bs, n, width = self.bs, self.n, self.steps + 1
        self.build(ops)
        predicts = torch.zeros(bs * n, dtype=torch.int32)
        accept = torch.full((bs, width), -1, dtype=torch.int32)
        accepted = torch.zeros(bs, dtype=torch.int32)
        links, slots = self.links.clone(), torch.arange(bs * n)
        ends, out = self.lengths + n, torch.empty(bs * n, dtype=torch.int64)
        drafted, moves = torch.empty(bs * self.topk * self.steps, dtype=torch.int64), torch.arange(bs * width)
        shape = (self.topk, self.steps)
        return {
            # A target has several layers, a draft one: only the first of them finds no plan.
            "decode_attention, 4 layers": layers(4, self.decode(ops, bs)),
            "decode_attention, draft": layers(1, self.decode(ops, bs * self.topk)),
            "extend_attention, verify, 4 layers": layers(4, self.extend(ops, n, self.mask if self.topk > 1 else None)),
            "extend_attention, draft": layers(1, self.extend(ops, n, None)),
            "extend_attention, prefill of 100, 4 layers": layers(4, self.extend(ops, 100, None, prefix=False)),
            "build_tree": lambda: self.build(ops),
            "verify_tree_greedy": lambda: ops.verify_tree_greedy_cpu(
                predicts, accept, accepted, self.tokens, *links, self.predicted
            ),
            "reconstruct_indices": lambda: ops.reconstruct_indices_from_tree_mask(
                self.mask, self.lengths, self.positions, *self.links, bs, n
            ),
            "draft_decode_metadata": lambda: ops.build_draft_decode_metadata_cpu(
                self.table, self.rows, self.lengths, *shape, POOL_LEN
            ),
            "assign_req_to_token": lambda: ops.assign_req_to_token_pool_cpu(
                self.rows, self.table, self.lengths, ends, slots, POOL_LEN
            ),
            "extend_cache_locs": lambda: ops.assign_extend_cache_locs_cpu(
                self.rows, self.table, self.lengths, ends, out, POOL_LEN
            ),
            "draft_cache_locs": lambda: ops.assign_draft_cache_locs_contiguous_cpu(
                self.rows, self.table, self.lengths, drafted, POOL_LEN, *shape
            ),
            "copy_kv_cache": lambda: ops.copy_all_layer_kv_cache_cpu(
                self.pointers, self.strides, moves, moves + moves % 2
            ),
            "fill_bonus_tokens": lambda: ops.fill_bonus_tokens_cpu(moves, accepted + 1, accepted.clone(), width),
            "fill_accept_out_cache_loc": lambda: ops.fill_accept_out_cache_loc_cpu(accept, slots, moves.clone()),
        }


def layers(count: int, call: Callable[[], None]) -> Callable[[], None]:
    """The attention of one forward pass: `count` calls with the same batch, which nobody has seen before."""

    def run() -> None:
        plan.cache_clear()
        for _ in range(count):
            call()

    return run


def timed(call: Callable[[], Any], calls: int) -> float:
    """Microseconds of CPU time a call: on a machine that does other work, the clock on the wall says little."""
    begin = time.process_time()
    for _ in range(calls):
        call()
    return (time.process_time() - begin) / calls * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description="Times the CPU engine's operators.")
    parser.add_argument("--against", type=Path, help="folder with another package sgl_kernel")
    parser.add_argument("--rounds", type=int, default=15, help="turns; the median counts")
    parser.add_argument("--calls", type=int, default=20, help="calls a turn")
    options = parser.parse_args()
    torch.set_num_threads(1)
    packages = [load(SITE)] + ([load(options.against)] if options.against else [])
    with torch.inference_mode():
        for bs, topk, steps, n in ((1, 1, 2, 3), (1, 4, 2, 16), (8, 1, 2, 3), (8, 4, 2, 16), (16, 4, 3, 16)):
            case = Case(bs, topk, steps, n, length=300)
            calls = [case.operators(package) for package in packages]
            for name in calls[0]:
                times: list[list[float]] = [[] for _ in packages]
                for _ in range(options.rounds):
                    for each, chosen in zip(times, calls, strict=True):
                        each.append(timed(chosen[name], options.calls))
                medians = [statistics.median(each) for each in times]
                row = {"batch": bs, "topk": topk, "nodes": n, "operator": name, "us": round(medians[0], 1)}
                if options.against:
                    row |= {"other_us": round(medians[1], 1), "ratio": round(medians[1] / medians[0], 2)}
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
