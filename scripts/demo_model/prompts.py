"""Chooses the prompts: openings of the trained text whose greedy continuation is lively and never a near-tie.

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
from .tokenizer import SPECIAL

TOKENS = 320
"""Tokens of the continuation that are looked at; more than the tests and the demo ask for."""
MARGIN = 2e-3
"""Least distance between the two best logits. Orders of summation move a float32 logit here by about 1e-5."""
PER_GRADE = 24
CHATS = 8
TRIED = 2
"""Candidates a wanted prompt."""


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


def lively(tokens: list[int], decoded: str) -> bool:
    """No special token, and lines that are mostly new.

    Lines that a kind of text repeats by nature (a setting's value, an end) count only once, hence the low bound.
    """
    lines = [line for line in decoded.split("\n")[:-1] if line]
    return min(tokens) >= len(SPECIAL) and len(set(lines)) >= max(4, 0.3 * len(lines))


def candidates(seed: int, grade: str) -> Iterator[str]:
    """Openings of a grade's kinds of text in turn, without end; of grade `chat`: contents of a user message."""
    if grade == "chat":
        grades = [candidates(seed + 1, name) for name in text.FAMILIES]
        while True:
            for openings in grades:
                yield text.REPLY_OPENING + next(openings)
    rng = random.Random(f"{seed} {grade}")
    makers = list(text.FAMILIES[grade].values())
    while True:
        for maker in makers:
            yield text.opening(maker(rng), text.OPENING_LINES)


def tried(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, grade: str, prompts: list[str]
) -> dict[str, Continuation]:
    """The continuation of every prompt; prompts of one length in tokens go through the model together."""
    by_length: dict[int, list[tuple[str, list[int]]]] = {}
    for prompt in dict.fromkeys(prompts):
        ids = tokenizer(text.as_chat(prompt, "") if grade == "chat" else prompt).input_ids
        by_length.setdefault(len(ids), []).append((prompt, ids))
    found: dict[str, Continuation] = {}
    for group in by_length.values():
        rows = continuations(model, torch.tensor([ids for _, ids in group]), TOKENS)
        found.update(zip((prompt for prompt, _ in group), rows, strict=True))
    return {prompt: found[prompt] for prompt in dict.fromkeys(prompts)}


def choose(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, seed: int) -> dict[str, list[str]]:
    """PER_GRADE prompts a grade and CHATS contents of a user message; prints how many it refused.

    Raises RuntimeError when a grade has too few good ones: then the model needs more training, not more dice.
    """
    chosen: dict[str, list[str]] = {}
    for grade in (*text.FAMILIES, "chat"):
        wanted = CHATS if grade == "chat" else PER_GRADE
        found = tried(model, tokenizer, grade, list(itertools.islice(candidates(seed, grade), TRIED * wanted)))
        good = {
            prompt: c.margin
            for prompt, c in found.items()
            if c.margin >= MARGIN and lively(c.tokens, tokenizer.decode(c.tokens))
        }
        if len(good) < wanted:
            raise RuntimeError(
                f"prompts of grade {grade}: {len(good)} good of {len(found)}, need {wanted}; train longer"
            )
        chosen[grade] = list(good)[:wanted]
        least = min(good[prompt] for prompt in chosen[grade])
        print(f"prompts {grade}: {len(good)} good of {len(found)}, least margin of the chosen {least:.4f}", flush=True)
    return chosen
