"""Speculation modes: the named (num_steps, topk, num_draft_tokens) that a running server is flipped among."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,23}")
RESERVED_NAMES = frozenset({"auto", "manual"})


@dataclass(frozen=True, slots=True)
class Mode:
    """One speculation mode.

    num_steps: draft steps a round (0 = no speculation). topk: branches a step. num_draft_tokens: nodes of the
    verify forward, the root included (1 = plain decode).
    """

    name: str
    num_steps: int
    topk: int
    num_draft_tokens: int

    @property
    def is_off(self) -> bool:
        return self.num_steps == 0

    @property
    def is_tree(self) -> bool:
        return self.topk > 1

    @property
    def max_acceptance_length(self) -> int:
        """Most tokens that one round can commit for one request, the bonus token included."""
        return self.num_steps + 1

    @property
    def shape(self) -> str:
        """The mode as operators write it, for example "2/4/16"; off is "0/-/1"."""
        return f"{self.num_steps}/{'-' if self.is_off else self.topk}/{self.num_draft_tokens}"

    def problem(self) -> str | None:
        """Why this mode cannot exist, or None. Source: the draft tree's pool size, topk + (steps - 1) * topk^2."""
        if not _NAME.fullmatch(self.name):
            return f"mode name {self.name!r} must be lower-case letters, digits, - or _, at most 24"
        if self.name in RESERVED_NAMES:
            return f"mode name {self.name!r} is reserved: it says who chooses, not how to draft"
        if self.num_steps < 0:
            return f"mode {self.name}: num_steps {self.num_steps} is negative"
        if self.is_off:
            if self.topk != 1 or self.num_draft_tokens != 1:
                return f"mode {self.name}: with num_steps 0, topk and num_draft_tokens must be 1"
            return None
        if self.topk < 1:
            return f"mode {self.name}: topk {self.topk} must be at least 1"
        if self.topk == 1 and self.num_draft_tokens != self.num_steps + 1:
            return (
                f"mode {self.name}: a chain (topk 1) of {self.num_steps} steps verifies "
                f"{self.num_steps + 1} tokens, not {self.num_draft_tokens}"
            )
        pool = self.topk + (self.num_steps - 1) * self.topk**2
        if not 2 <= self.num_draft_tokens <= pool + 1:
            return (
                f"mode {self.name}: num_draft_tokens {self.num_draft_tokens} must be between 2 and {pool + 1}, "
                f"the most that {self.num_steps} steps of topk {self.topk} can draft"
            )
        return None

    def fits(self, boot: Mode) -> str | None:
        """Why a server that was booted at `boot` cannot run this mode, or None."""
        for name in ("num_steps", "topk", "num_draft_tokens"):
            mine, most = getattr(self, name), getattr(boot, name)
            if mine > most:
                return f"mode {self.name}: {name} {mine} is above {most} of the boot mode {boot.name}"
        return None


TREE = Mode("tree", 2, 4, 16)
CHAIN = Mode("chain", 2, 1, 3)
OFF = Mode("off", 0, 1, 1)
DEFAULT_MODES: tuple[Mode, ...] = (TREE, CHAIN, OFF)


def boot_mode(modes: Sequence[Mode]) -> Mode:
    """The mode that a server must boot in: the one that every other fits into.

    Raises ValueError naming the pair when no mode is the largest in every dimension.
    """
    if not modes:
        raise ValueError("at least one mode is needed")
    largest = max(modes, key=lambda m: (m.num_draft_tokens, m.topk, m.num_steps))
    for mode in modes:
        if why := mode.fits(largest):
            raise ValueError(why)
    return largest


def modes_problem(modes: Sequence[Mode]) -> str | None:
    """Why this list of modes cannot be served by one process, or None."""
    for mode in modes:
        if why := mode.problem():
            return why
    names = [m.name for m in modes]
    for name in names:
        if names.count(name) > 1:
            return f"mode name {name!r} is used twice"
    try:
        boot_mode(modes)
    except ValueError as error:
        return str(error)
    return None
