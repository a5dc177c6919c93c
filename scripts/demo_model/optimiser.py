"""The training loop: Muon for the matrices inside layers, AdamW for everything else, a fixed number of steps."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

MATRIX_RATE = 0.02
OTHER_RATE = 3e-3
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


class Muon(torch.optim.Optimizer):
    """Momentum with orthogonalised updates (Newton-Schulz), in float32.

    torch.optim.Muon computes in bfloat16, which takes longer than the whole training step on a CPU without it.
    """

    def __init__(self, parameters: list[nn.Parameter], lr: float, momentum: float = 0.95) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[nn.Parameter]] = {}
            for parameter in group["params"]:
                by_shape.setdefault(parameter.shape, []).append(parameter)
            for shape, same in by_shape.items():
                update = torch.stack([self._momentum(p, group["momentum"]) for p in same])
                update = orthogonalise(update) * max(1.0, shape[0] / shape[1]) ** 0.5
                for parameter, change in zip(same, update, strict=True):
                    parameter.add_(change, alpha=-group["lr"])

    def _momentum(self, parameter: nn.Parameter, momentum: float) -> Tensor:
        state = self.state[parameter]
        buffer = state.setdefault("momentum", torch.zeros_like(parameter))
        assert parameter.grad is not None
        buffer.lerp_(parameter.grad, 1 - momentum)
        return parameter.grad.lerp(buffer, momentum)


def orthogonalise(matrices: Tensor, rounds: int = 4) -> Tensor:
    """The nearest matrices with singular values near 1: [N, rows, columns] in and out."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose(1, 2) if tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = NEWTON_SCHULZ
    for _ in range(rounds):
        gram = x @ x.transpose(1, 2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.transpose(1, 2) if tall else x


def optimise(model: nn.Module, losses: Callable[[int], Tensor], steps: int, label: str, *, scale: float = 1.0) -> None:
    """Trains `model` for `steps` steps with warm-up and linear decay; `losses(step)` is the loss of a step's batch.

    `scale` multiplies the learning rates.
    """
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and ("layer" in name or name == "fc.weight")]
    inside = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in inside]
    pairs = (
        (Muon(matrices, lr=MATRIX_RATE), MATRIX_RATE),
        (torch.optim.AdamW(others, lr=OTHER_RATE, weight_decay=0.01, betas=(0.9, 0.98)), OTHER_RATE),
    )
    for step in range(steps):
        schedule = min(1.0, (step + 1) / 30, max(0.02, (steps - step) / (steps * 0.6)))
        loss = losses(step)
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(others, 1.0)
        for optimiser, rate in pairs:
            for group in optimiser.param_groups:
                group["lr"] = rate * schedule * scale
            optimiser.step()
        if not math.isfinite(loss.item()):
            raise RuntimeError(f"{label}: loss is {loss.item()} at step {step}; lower the learning rates")
        if step % 100 == 99:
            print(f"{label}: step {step + 1}/{steps}, loss {loss.item():.3f}", flush=True)
