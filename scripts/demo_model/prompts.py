"""Chooses the prompts: openings of the trained text that the model goes on with rightly and without near-ties.

A tiny model may hold two next tokens equally likely. Which of them a server then takes depends on the order of its
floating-point sums, thus on the batch; tests that compare greedy text exactly need prompts where that cannot happen.
"""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from . import text

TOKENS = 320
"""Tokens of the continuation that are looked at; more than the tests and the demo ask for."""
MARGIN = 2e-3
"""Least distance between the two best logits. Orders of summation move a float32 logit here by about 1e-5."""
PER_GRADE = 24
CHATS = 6
TRIED = 72
"""Candidates a grade."""


@dataclass(frozen=True)
class Continuation:
    tokens: list[int]
    margin: float


@torch.no_grad()
def continuations(model: LlamaForCausalLM, ids: Tensor, count: int) -> list[Continuation]:
    """Greedy next `count` tokens after each row of int64 [B, T], and the row's least distance of the best two logits."""
    cache, step = None, ids
    chosen: list[Tensor] = []
    least = torch.full((ids.shape[0],), float("inf"))
    for _ in range(count):
        out = model(input_ids=step, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        best = out.logits[:, -1].topk(2)
        least = torch.minimum(least, best.values[:, 0] - best.values[:, 1])
        step = best.indices[:, :1]
        chosen.append(step)
    rows = torch.cat(chosen, 1).tolist()
    return [Continuation(row, margin) for row, margin in zip(rows, least.tolist(), strict=True)]


@dataclass(frozen=True)
class Candidate:
    """A prompt and the text that rightly follows it, longer than TOKENS tokens."""

    prompt: str
    sequel: str


def candidates(seed: int, grade: str) -> Iterator[Candidate]:
    """Openings of a grade's kinds of text in turn, without end; of grade `chat`: contents of a user message."""
    chat = grade == "chat"
    grades = text.FAMILIES.values() if chat else [text.FAMILIES[grade]]
    kinds = [maker for makers in grades for maker in makers.values()]
    rng = random.Random(f"{seed} {grade}")
    while True:
        for maker in kinds:
            lines = maker(rng)
            shown = text.opening(lines, text.OPENING_LINES)
            sequel = text.take(lines, 8 * TOKENS)
            if chat:
                yield Candidate(text.REPLY_OPENING + shown, sequel)
            else:
                prompt = text.without_end(shown)
                yield Candidate(prompt, shown.removeprefix(prompt) + sequel)


def tried(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, grade: str, prompts: list[str]
) -> dict[str, Continuation]:
    """The continuation of every prompt; prompts of one length in tokens go through the model together."""
    by_length: dict[int, list[tuple[str, list[int]]]] = {}
    for prompt in prompts:
        ids = tokenizer(text.as_chat(prompt, "") if grade == "chat" else prompt).input_ids
        by_length.setdefault(len(ids), []).append((prompt, ids))
    found: dict[str, Continuation] = {}
    for group in by_length.values():
        rows = continuations(model, torch.tensor([ids for _, ids in group]), TOKENS)
        found.update(zip((prompt for prompt, _ in group), rows, strict=True))
    return found


def choose(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, seed: int) -> dict[str, list[str]]:
    """PER_GRADE prompts a grade and CHATS contents of a user message; prints how many it refused.

    Raises RuntimeError when a grade has too few good ones: then the model needs more training, not more dice.
    """
    chosen: dict[str, list[str]] = {}
    for grade in (*text.FAMILIES, "chat"):
        wanted = CHATS if grade == "chat" else PER_GRADE
        sequels = {c.prompt: c.sequel for c in itertools.islice(candidates(seed, grade), TRIED)}
        found = tried(model, tokenizer, grade, list(sequels))
        right = {p: c.margin for p, c in found.items() if sequels[p].startswith(tokenizer.decode(c.tokens))}
        good = [prompt for prompt in sequels if right.get(prompt, 0.0) >= MARGIN]
        print(f"prompts {grade}: of {len(found)}, {len(right)} go on rightly, {len(good)} of them clearly", flush=True)
        if len(good) < wanted:
            raise RuntimeError(f"prompts of grade {grade}: {len(good)} good ones, need {wanted}; train more steps")
        chosen[grade] = good[:wanted]
        print(f"prompts {grade}: least margin of the chosen {min(right[p] for p in good[:wanted]):.4f}", flush=True)
    return chosen
