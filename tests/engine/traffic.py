"""Greedy traffic for the tests: joins, finishes, stop strings, shared prefixes and aborts, from a seed."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from specctl_demo import prompts


@dataclass(frozen=True, slots=True)
class Request:
    """abort_after: chunks after which the client goes away; 0 = never. delay: seconds before it is sent."""

    text: str
    tokens: int
    ignore_eos: bool = True
    stop: tuple[str, ...] = ()
    abort_after: int = 0
    by_api: bool = False
    delay: float = 0.0
    extra: dict[str, Any] = field(default_factory=dict)

    def body(self, rid: str) -> dict[str, Any]:
        sampling = {
            "temperature": 0,
            "max_new_tokens": self.tokens,
            "ignore_eos": self.ignore_eos,
            "stop": list(self.stop),
        }
        return {"text": self.text, "rid": rid, "stream": True, "sampling_params": sampling | self.extra}


@dataclass(slots=True)
class Outcome:
    tokens: list[int] = field(default_factory=list)
    aborted: bool = False
    finish: str = ""


def mixed_requests(seed: int, count: int) -> list[Request]:
    """`count` requests of very different lengths; about one in seven aborts, one in four shares a long prefix."""
    chance = random.Random(seed)
    families = prompts()
    texts = [text for name in ("low", "medium", "high") for text in families[name]]
    shared = [" ".join(chance.sample(texts, 3)) for _ in range(3)]
    made = []
    for _ in range(count):
        text = chance.choice(texts)
        text = text[: chance.choice((8, 20, 60, 200, 700))]
        if chance.random() < 0.25:
            text = chance.choice(shared) + " " + text[:60]
        aborts = chance.random() < 0.15
        made.append(
            Request(
                text=text,
                tokens=chance.choice((1, 2, 3, 7, 20, 48, 90, 150)),
                ignore_eos=chance.random() < 0.7,
                stop=("\n\n", "error") if chance.random() < 0.15 else (),
                abort_after=chance.choice((2, 5, 9)) if aborts else 0,
                by_api=chance.random() < 0.5,
                delay=chance.choice((0.0, 0.0, 0.0, 0.02, 0.1)),
            )
        )
    return made


async def _send(client: httpx.AsyncClient, rid: str, request: Request) -> Outcome:
    await asyncio.sleep(request.delay)
    outcome, chunks = Outcome(), 0
    async with client.stream("POST", "/generate", json=request.body(rid)) as reply:
        reply.raise_for_status()
        async for line in reply.aiter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line[6:])
            assert "output_ids" in chunk, chunk
            outcome.tokens = chunk["output_ids"]
            outcome.finish = (chunk["meta_info"]["finish_reason"] or {}).get("type", "")
            chunks += 1
            if request.abort_after and chunks >= request.abort_after and not outcome.aborted:
                outcome.aborted = True
                if not request.by_api:
                    return outcome
                await client.post("/abort_request", json={"rid": rid})
    return outcome


async def run_traffic(url: str, requests: Sequence[Request], streams: int, *, aborts: bool = True) -> list[Outcome]:
    """Send all requests, `streams` at a time and in order; one outcome each."""
    outcomes = [Outcome() for _ in requests]
    queue = iter(enumerate(requests))
    tag = random.randrange(10**9)

    async def worker(client: httpx.AsyncClient) -> None:
        for index, request in queue:
            sent = (
                request
                if aborts
                else Request(request.text, request.tokens, request.ignore_eos, request.stop, extra=request.extra)
            )
            outcomes[index] = await _send(client, f"t{tag}-{index}", sent)

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=300, limits=limits) as client, asyncio.TaskGroup() as group:
        for _ in range(streams):
            group.create_task(worker(client))
    return outcomes


async def run_with_flips(
    server: Any, requests: Sequence[Request], streams: int, *, modes: Sequence[str], every_s: float, seed: int = 5
) -> tuple[list[Outcome], int]:
    """The traffic while modes change at random times, `every_s` apart on average; the outcomes and the commands sent."""
    chance, commands = random.Random(seed), 0
    traffic = asyncio.create_task(run_traffic(server.url, requests, streams))
    while not traffic.done():
        await asyncio.to_thread(server.flip, chance.choice(list(modes)))
        commands += 1
        await asyncio.sleep(chance.random() * 2 * every_s)
    return await traffic, commands


def differences(reference: Sequence[Outcome], found: Sequence[Outcome]) -> list[str]:
    """What differs, in words; an aborted request has to be a beginning of its reference."""
    wrong = []
    for index, (expected, got) in enumerate(zip(reference, found, strict=True)):
        if got.aborted:
            length = min(len(got.tokens), len(expected.tokens))
            same = got.tokens[:length] == expected.tokens[:length]
        else:
            same = got.tokens == expected.tokens
        if not same:
            at = next(
                (i for i, pair in enumerate(zip(expected.tokens, got.tokens, strict=False)) if pair[0] != pair[1]), -1
            )
            wrong.append(
                f"request {index}: differs at token {at} ({len(expected.tokens)} and {len(got.tokens)} tokens)"
            )
    return wrong
