"""The EAGLE-3 draft head of the target, trained with its own hidden states fed back.

Tensor names and the forward follow what SGLang's LlamaForCausalLMEagle3 loads: one decoder layer over the embedding of
the next token joined with the projected hidden states of three target layers. Embeddings are the target's.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from .optimiser import optimise
from .target import LONG_BATCH, SHORT, SHORT_BATCH, round_to_half

AUX_LAYERS = (0, 1, 2)
"""Target layers whose outputs the draft reads; the default of SGLang needs a deeper target."""
UNROLLED = 2
"""Draft passes in training; in serving a draft of num_steps makes num_steps passes."""
LATER_PASS_WEIGHT = 0.8


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class _Attention(nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        size, self.heads, self.groups = config.hidden_size, config.num_attention_heads, config.num_key_value_heads
        self.width = size // self.heads
        self.q_proj = _linear(2 * size, size)
        self.k_proj = _linear(2 * size, self.groups * self.width)
        self.v_proj = _linear(2 * size, self.groups * self.width)
        self.o_proj = _linear(size, size)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B, T, 2H] -> rotated queries, rotated keys and values, each [B, heads, T, width]."""
        batch, length, _ = x.shape
        q, k, v = (
            p(x).view(batch, length, -1, self.width).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        k, v = (y.repeat_interleave(self.heads // self.groups, dim=1) for y in (k, v))
        return _rotate(q, cos, sin), _rotate(k, cos, sin), v


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class _Feedforward(nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.gate_proj = _linear(config.hidden_size, config.intermediate_size)
        self.up_proj = _linear(config.hidden_size, config.intermediate_size)
        self.down_proj = _linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class _Layer(nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.input_layernorm = nn.RMSNorm(size, eps)
        self.hidden_norm = nn.RMSNorm(size, eps)
        self.post_attention_layernorm = nn.RMSNorm(size, eps)
        self.self_attn = _Attention(config)
        self.mlp = _Feedforward(config)


class Draft(nn.Module):
    """The head's weights under the names that are shipped, and its training forward."""

    def __init__(self, target: LlamaForCausalLM) -> None:
        super().__init__()
        config = target.config
        self.fc = _linear(len(AUX_LAYERS) * config.hidden_size, config.hidden_size)
        self.midlayer = _Layer(config)
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = _linear(config.hidden_size, config.vocab_size)
        self.lm_head.weight.data.copy_(target.lm_head.weight)

    def passes(self, aux: Tensor, embeds: Tensor, rotary: nn.Module, count: int) -> list[Tensor]:
        """Logits of `count` passes for every anchor position.

        aux [B, T, 3H]: hidden states of the target at positions 0..T-1; embeds [B, T + count - 1, H]: embeddings of
        the tokens at positions 1... Pass j of anchor t reads token t+1+j and the hidden state of pass j-1, and
        attends, as in serving, to the first-pass entries up to t and to its own anchor's later passes. Returns
        [B, T, V] each.
        """
        layer, attention = self.midlayer, self.midlayer.self_attn
        length = aux.shape[1]
        mask = torch.full((length, length), float("-inf")).triu(1)
        hidden = self.fc(aux)
        keys: list[Tensor] = []
        values: list[Tensor] = []
        logits: list[Tensor] = []
        for step in range(count):
            cos, sin = rotary(hidden, torch.arange(step, step + length)[None])
            x = torch.cat([layer.input_layernorm(embeds[:, step : step + length]), layer.hidden_norm(hidden)], dim=-1)
            q, k, v = attention.project(x, cos[:, None], sin[:, None])
            keys.append(k)
            values.append(v)
            mixed = _attend(q, keys, values, mask).transpose(1, 2).flatten(2)
            hidden = hidden + attention.o_proj(mixed)
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
            logits.append(self.lm_head(self.norm(hidden)))
        return logits


def _attend(q: Tensor, keys: list[Tensor], values: list[Tensor], mask: Tensor) -> Tensor:
    scale = q.shape[-1] ** -0.5
    scores = [q @ keys[0].transpose(-1, -2) * scale + mask]
    scores += [(q * k).sum(-1, keepdim=True) * scale for k in keys[1:]]
    weights = torch.cat(scores, -1).softmax(-1)
    length = mask.shape[0]
    mixed = weights[..., :length] @ values[0]
    for index, value in enumerate(values[1:]):
        mixed = mixed + weights[..., length + index : length + index + 1] * value
    return mixed


def targets(target: LlamaForCausalLM, rows: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of token rows [B, S]: aux [B, T, 3H], embeddings [B, S - 1, H], logits [B, S - 1, V], T = S - count - 1 anchors.

    Pass j of anchor t is taught `logits[:, t + 1 + j]`, the target's prediction after reading token t+1+j.
    """
    with torch.no_grad():
        out = target(input_ids=rows, output_hidden_states=True)
        anchors = rows.shape[1] - count
        aux = torch.cat([out.hidden_states[layer + 1] for layer in AUX_LAYERS], -1)[:, :anchors]
        return aux, target.model.embed_tokens(rows[:, 1:]), out.logits[:, 1:]


def loss_of(draft: Draft, target: LlamaForCausalLM, rows: Tensor, weights: Tensor, given: Tensor) -> Tensor:
    """Soft cross-entropy against the target over all passes, token rows int64 [B, S].

    `weights` [B] scale the rows; the first `given` [B] tokens of a row are not taught.
    """
    aux, embeds, taught = targets(target, rows, UNROLLED)
    length = aux.shape[1]
    total = rows.new_zeros((), dtype=torch.float32)
    for step, logits in enumerate(draft.passes(aux, embeds, target.model.rotary_emb, UNROLLED)):
        goal = taught[:, step : step + length].softmax(-1)
        each = -(goal * logits.log_softmax(-1)).sum(-1)
        places = torch.arange(step + 2, step + 2 + length)[None]
        is_taught = places >= given[:, None]
        total = total + LATER_PASS_WEIGHT**step * (each * weights[:, None] * is_taught).sum() / is_taught.sum()
    return total


def train(target: LlamaForCausalLM, documents: Tensor, given: Tensor, weights: Tensor, steps: int, seed: int) -> Draft:
    """Trains on int64 [documents, length] with a weight a document, all above 0; comes back rounded to float16.

    The first `given` [documents] tokens are not taught.
    """
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    draft = Draft(target)

    def loss(step: int) -> Tensor:
        batch, size = (SHORT_BATCH, SHORT) if step % 2 else (LONG_BATCH, documents.shape[1])
        rows = torch.randint(0, documents.shape[0], (batch,), generator=generator)
        return loss_of(draft, target, documents[rows, :size], weights[rows], given[rows])

    optimise(draft, loss, steps, "draft")
    round_to_half(draft)
    return draft.eval().requires_grad_(False)
