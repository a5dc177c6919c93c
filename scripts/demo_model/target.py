"""The target: a small Llama, trained for a fixed number of steps."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from .optimiser import optimise
from .tokenizer import VOCABULARY


def config() -> LlamaConfig:
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        bos_token_id=0,
        eos_token_id=2,
        pad_token_id=0,
        tie_word_embeddings=False,
    )


SHORT, SHORT_BATCH, LONG_BATCH = 128, 16, 4
"""Tokens of a short window; documents a batch of short windows and of whole documents."""
UNTAUGHT = -100
"""A label that cross_entropy leaves out."""


def labels_of(documents: Tensor, given: Tensor) -> Tensor:
    """What each token of int64 [N, T] is taught to be followed by: [N, T - 1], UNTAUGHT up to `given` [N] tokens."""
    places = torch.arange(1, documents.shape[1])[None]
    return documents[:, 1:].masked_fill(places < given[:, None], UNTAUGHT)


def short_or_long(step: int, steps: int, length: int) -> tuple[int, int]:
    """(documents a batch, tokens of each): short windows, then whole documents for the last tenth of the steps."""
    return (LONG_BATCH, length) if step >= steps * 9 // 10 else (SHORT_BATCH, SHORT)


def train(documents: Tensor, given: Tensor, steps: tuple[int, ...], seed: int) -> LlamaForCausalLM:
    """Trains on int64 [documents, length], of which the first `given` [documents] tokens are not taught.

    A phase for each of `steps`: first short windows, in which the text's rules are learned fastest, then whole
    documents, so that the rules hold at every position. The weights come back rounded to float16, in which they are
    shipped: the draft learns the target that serves.
    """
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config())
    labels = labels_of(documents, given)
    length = documents.shape[1]

    def phase(number: int, shape: Callable[[int], tuple[int, int]], scale: float) -> None:
        generator = torch.Generator().manual_seed(seed + number)

        def loss(step: int) -> Tensor:
            batch, size = shape(step)
            rows = torch.randint(0, documents.shape[0], (batch,), generator=generator)
            logits = model(input_ids=documents[rows, : size - 1]).logits
            wanted = labels[rows, : size - 1]
            return functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=UNTAUGHT)

        optimise(model, loss, steps[number], f"target, phase {number + 1}", scale=scale)
        round_to_half(model)

    phase(0, lambda step: short_or_long(step, steps[0], length), 1.0)
    for number in range(1, len(steps)):
        phase(number, lambda _: (LONG_BATCH, length), 0.5)
    return model.eval().requires_grad_(False)


@torch.no_grad()
def round_to_half(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.copy_(parameter.half().float())
