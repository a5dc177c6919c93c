"""Whether a draft fits its target, and a target the engine: read from their config.json files alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from specctl_launch.checks import CheckResult, fail, ok, warn

Config = Mapping[str, Any]

_LAYER_KINDS = {
    "sliding_attention": "sliding-window attention",
    "chunked_attention": "chunked attention",
    "linear_attention": "linear attention",
    "mamba": "Mamba layers",
}
_HYBRID_KEYS = {
    "mamba_d_state": "Mamba layers",
    "ssm_state_size": "Mamba layers",
    "linear_num_key_heads": "linear attention",
    "hybrid_override_pattern": "Mamba layers",
    "is_hybrid_swa": "sliding-window attention",
}


def read_config(folder: Path, role: Literal["target", "draft"]) -> Config | CheckResult:
    """The model's config.json (a nested text_config laid over it), or the failed check that says why not."""
    name = f"{role} model"
    if not folder.is_dir():
        return fail(name, f"model.{role}: folder {folder} does not exist", f"Set model.{role}", invalid=True)
    file = folder / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return fail(name, f"model.{role}: {folder} has no config.json", "Name a folder of a model", invalid=True)
    except (OSError, ValueError) as error:
        return fail(name, f"model.{role}: {file} cannot be read: {error}", "Repair the file", invalid=True)
    if not isinstance(config, dict):
        return fail(name, f"model.{role}: {file} holds no JSON object", "Repair the file", invalid=True)
    text = config.get("text_config")
    return {**config, **text, "architectures": config.get("architectures")} if isinstance(text, dict) else config


def target_check(target: Config, folder: Path, *, kind: str, tp: int) -> CheckResult:
    """Whether flips work for this kind of target at all."""
    name = "target model"
    if trait := _unsupported_trait(target):
        return fail(
            name,
            f"{folder} ({_architecture(target)}) has {trait}: draft and target state of such models cannot be flipped",
            "Serve a target with full attention in every layer",
        )
    if kind == "cpu" and target.get("kv_lora_rank"):
        return fail(name, f"{folder} uses latent attention (MLA), which the CPU engine lacks", "Use engine.kind cuda")
    heads = target.get("num_attention_heads")
    if isinstance(heads, int) and heads % tp:
        return fail(name, f"server.tp: {tp} does not divide the target's {heads} attention heads", "Change server.tp")
    return ok(name, f"{_architecture(target)} in {folder}")


def draft_checks(target: Config, draft: Config, folder: Path) -> list[CheckResult]:
    """Whether this EAGLE-3 draft was made for this target. One result a problem, or one ok."""
    problems = [*_misfits(target, draft)]
    results = [
        fail(
            "draft model",
            f"the draft in {folder} does not fit the target: {why}",
            "Use the EAGLE-3 draft of this target, in SGLang's form",
        )
        for why in problems
    ]
    most, longest = draft.get("max_position_embeddings"), target.get("max_position_embeddings")
    if isinstance(most, int) and isinstance(longest, int) and most < longest:
        results.append(
            warn(
                "draft context",
                f"the draft was made for {most} tokens of context, the target for {longest}: "
                f"acceptance falls beyond {most} (sglang#6783)",
                "Expect off to win on long contexts",
            )
        )
    if not problems:
        results.insert(0, ok("draft model", f"{_architecture(draft)} in {folder} fits the target"))
    return results


def _misfits(target: Config, draft: Config) -> Iterator[str]:
    architecture = _architecture(draft)
    if "eagle3" not in architecture.lower():
        yield f"its architecture is {architecture}, not an EAGLE-3 head"
        return
    hidden, wanted = target.get("hidden_size"), draft.get("target_hidden_size", draft.get("hidden_size"))
    if hidden != wanted:
        yield f"it reads hidden states of size {wanted}, the target's are {hidden}"
    vocabulary, its_vocabulary = target.get("vocab_size"), draft.get("vocab_size")
    if vocabulary != its_vocabulary:
        yield f"vocab_size is {its_vocabulary}, the target's {vocabulary}"
    drafted = draft.get("draft_vocab_size")
    if isinstance(drafted, int) and isinstance(its_vocabulary, int) and drafted > its_vocabulary:
        yield f"draft_vocab_size {drafted} is above vocab_size {its_vocabulary}"
    yield from _layer_misfits(target.get("num_hidden_layers"), _captured_layers(draft))


def _captured_layers(draft: Config) -> list[int] | None:
    eagle = draft.get("eagle_config")
    ids = eagle.get("eagle_aux_hidden_state_layer_ids") if isinstance(eagle, dict) else None
    return list(ids) if isinstance(ids, list) and all(isinstance(i, int) for i in ids) else None


def _layer_misfits(layers: object, captured: list[int] | None) -> Iterator[str]:
    """SGLang takes a layer's output where the next layer begins, so the last layer's cannot be taken.

    Without ids it takes what enters layers 2, n/2 and n-3: three different ones only from 6 layers on.
    """
    if not isinstance(layers, int):
        return
    if captured is None:
        if layers < 6:
            yield (
                f"it names no eagle_aux_hidden_state_layer_ids, and SGLang's own choice needs 6 layers, "
                f"the target has {layers}"
            )
        return
    outside = [i for i in captured if not 0 <= i <= layers - 2]
    if outside or len(set(captured)) != len(captured):
        usable = f"0 to {layers - 2} of the target"
        yield f"eagle_aux_hidden_state_layer_ids {captured} must be different layers from {usable}"


def _unsupported_trait(target: Config) -> str | None:
    kinds = target.get("layer_types")
    for kind in kinds if isinstance(kinds, list) else ():
        if kind in _LAYER_KINDS:
            return _LAYER_KINDS[kind]
    for key, trait in _HYBRID_KEYS.items():
        if target.get(key):
            return trait
    return None


def _architecture(config: Config) -> str:
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else "an unnamed architecture"
