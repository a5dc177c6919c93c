"""The modes that this process may be flipped among, as the launcher gave them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

CAUSES = ("operator", "policy", "guard", "experiment", "boot")
BOOT_CAUSE = CAUSES.index("boot")


class ModeError(ValueError):
    """The modes given to this process cannot be served; the message says why."""


@dataclass(frozen=True, slots=True)
class EngineMode:
    """`id` is the mode's number in commands. `steps` 0 is off; `tokens` counts the root of the tree."""

    id: int
    name: str
    steps: int
    topk: int
    tokens: int

    @property
    def dims(self) -> tuple[int, int, int]:
        return self.steps, self.topk, self.tokens


def parse_modes(text: str) -> tuple[EngineMode, ...]:
    """Modes from SPECCTL_MODES: a JSON list of {name, num_steps, topk, num_draft_tokens}. Raises ModeError."""
    try:
        rows = json.loads(text)
        modes = tuple(
            EngineMode(i, str(r["name"]), int(r["num_steps"]), int(r["topk"]), int(r["num_draft_tokens"]))
            for i, r in enumerate(rows)
        )
    except (ValueError, TypeError, KeyError) as error:
        raise ModeError(f"SPECCTL_MODES cannot be read: {error!r}") from error
    if not modes:
        raise ModeError("SPECCTL_MODES names no mode")
    if len({m.name for m in modes}) != len(modes):
        raise ModeError("SPECCTL_MODES names a mode twice")
    return modes


def default_modes(steps: int, topk: int, tokens: int) -> tuple[EngineMode, ...]:
    """Modes for a server that was launched by hand: as launched, a chain of the same steps (if it is a tree), off."""
    rows: list[tuple[str, int, int, int]] = []
    if topk > 1:
        rows.append(("tree", steps, topk, tokens))
    rows += [("chain", steps, 1, steps + 1), ("off", 0, 1, 1)]
    return tuple(EngineMode(i, *row) for i, row in enumerate(rows))


def resolve(
    steps: int, topk: int, tokens: int, env: Mapping[str, str] = os.environ
) -> tuple[tuple[EngineMode, ...], EngineMode]:
    """The modes and the one that the server boots in: it must have the launched dimensions and be the largest."""
    text = env.get("SPECCTL_MODES")
    modes = parse_modes(text) if text else default_modes(steps, topk, tokens)
    boot = next((m for m in modes if m.dims == (steps, topk, tokens)), None)
    if boot is None:
        raise ModeError(
            f"the server was launched with {steps}/{topk}/{tokens} (steps/topk/draft tokens), "
            f"which none of the modes has: {', '.join(f'{m.name} {m.steps}/{m.topk}/{m.tokens}' for m in modes)}"
        )
    for mode in modes:
        if mode.steps == 0 and mode.dims != (0, 1, 1):
            raise ModeError(f"mode {mode.name}: with 0 steps, topk and draft tokens must be 1")
        if mode.topk == 1 and mode.tokens != mode.steps + 1:
            raise ModeError(
                f"mode {mode.name}: a chain of {mode.steps} steps verifies {mode.steps + 1} tokens, not {mode.tokens}"
            )
        if any(mine > most for mine, most in zip(mode.dims, boot.dims, strict=True)):
            raise ModeError(f"mode {mode.name} is larger than {boot.name}, which the server was launched with")
    return modes, boot
