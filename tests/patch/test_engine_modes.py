from __future__ import annotations

import json

import pytest

from specctl.core.modes import DEFAULT_MODES
from specctl_engine.modes import ModeError, default_modes, parse_modes, resolve


def env_of(*rows: tuple[str, int, int, int]) -> dict[str, str]:
    keys = ("name", "num_steps", "topk", "num_draft_tokens")
    return {"SPECCTL_MODES": json.dumps([dict(zip(keys, row, strict=True)) for row in rows])}


def test_without_modes_given_the_three_usual_ones_are_those_of_the_console() -> None:
    ours = [(m.name, m.steps, m.topk, m.tokens) for m in default_modes(2, 4, 16)]
    assert ours == [(m.name, m.num_steps, m.topk, m.num_draft_tokens) for m in DEFAULT_MODES]


def test_a_chain_launched_by_hand_gets_chain_and_off() -> None:
    modes, boot = resolve(3, 1, 4, {})
    assert [m.name for m in modes] == ["chain", "off"]
    assert boot.name == "chain"


def test_the_boot_mode_need_not_be_the_first() -> None:
    modes, boot = resolve(2, 4, 16, env_of(("off", 0, 1, 1), ("big", 2, 4, 16)))
    assert (boot.name, boot.id) == ("big", 1)
    assert [m.id for m in modes] == [0, 1]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([("tree", 3, 4, 16)], "launched with 2/4/16"),
        ([("tree", 2, 4, 16), ("deep", 3, 1, 4)], "mode deep is larger than tree"),
        ([("tree", 2, 4, 16), ("chain", 2, 1, 4)], "a chain of 2 steps verifies 3 tokens, not 4"),
        ([("tree", 2, 4, 16), ("off", 0, 4, 1)], "with 0 steps, topk and draft tokens must be 1"),
        ([("tree", 2, 4, 16), ("tree", 0, 1, 1)], "names a mode twice"),
    ],
)
def test_modes_that_cannot_be_served_are_named(rows: list[tuple[str, int, int, int]], reason: str) -> None:
    with pytest.raises(ModeError, match=reason):
        resolve(2, 4, 16, env_of(*rows))


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"name": 1}', '[{"name": "tree"}]', '[{"name": "a", "num_steps": "x"}]', "[1]"]
)
def test_unreadable_modes_are_refused(text: str) -> None:
    with pytest.raises(ModeError):
        parse_modes(text)
