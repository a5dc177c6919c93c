"""The shipped demo model: whole, small, and a draft that fits its target."""

import json
import shutil
import struct
from pathlib import Path

import pytest

import specctl_demo

CAP = 6 * 1024 * 1024
GRADES = {"low", "medium", "high", "chat"}


def config(folder: Path) -> dict:
    return json.loads((folder / "config.json").read_text())


def tensors(folder: Path) -> dict[str, list[int]]:
    """Name -> shape, from the safetensors header."""
    data = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}


def test_checksums_match():
    specctl_demo.verify()


def test_checksums_cover_every_file():
    root = specctl_demo.target_dir().parent
    listed = {line.split("  ")[1] for line in (root / "SHA256SUMS").read_text().splitlines()}
    there = {p.relative_to(root).as_posix() for f in ("target", "draft") for p in (root / f).rglob("*")}
    assert listed == there | {"prompts.json"}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    root = specctl_demo.target_dir().parent
    return Path(shutil.copytree(root, tmp_path / "demo", ignore=shutil.ignore_patterns("__pycache__", "*.py")))


def test_an_altered_file_is_named_with_the_remedy(copy: Path):
    weights = copy / "draft" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(ValueError, match=r"draft/model\.safetensors has sha256 .*reinstall specctl-console"):
        specctl_demo.verify(copy)


@pytest.mark.parametrize("name", ["target/tokenizer.json", "SHA256SUMS"])
def test_a_missing_file_is_named_with_the_remedy(copy: Path, name: str):
    (copy / name).unlink()
    with pytest.raises(ValueError, match=rf"{name} cannot be read .*reinstall specctl-console"):
        specctl_demo.verify(copy)


def test_size_stays_small():
    root = specctl_demo.target_dir().parent
    assert sum(p.stat().st_size for f in ("target", "draft") for p in (root / f).iterdir()) < CAP


def test_prompts_are_many_and_distinct():
    prompts = specctl_demo.prompts()
    assert set(prompts) == GRADES
    assert all(len(prompts[grade]) >= 16 for grade in GRADES - {"chat"})
    assert len(prompts["chat"]) >= 4
    texts = [text for grade in prompts.values() for text in grade]
    assert len(set(texts)) == len(texts)
    assert all(text.strip() and "<|" not in text for text in texts)


def test_draft_fits_target():
    target, draft = config(specctl_demo.target_dir()), config(specctl_demo.draft_dir())
    assert draft["architectures"] == ["LlamaForCausalLMEagle3"]
    for key in ("hidden_size", "vocab_size", "num_attention_heads", "num_key_value_heads", "max_position_embeddings"):
        assert draft[key] == target[key], key
    layers = draft["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
    assert all(0 <= layer < target["num_hidden_layers"] - 1 for layer in layers)


def test_draft_weights_have_the_shapes_of_its_config():
    config_ = config(specctl_demo.draft_dir())
    size, layers = config_["hidden_size"], config_["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
    shapes = tensors(specctl_demo.draft_dir())
    assert shapes["fc.weight"] == [size, size * len(layers)]
    assert shapes["midlayer.self_attn.q_proj.weight"] == [size, 2 * size]
    assert shapes["lm_head.weight"] == [config_["draft_vocab_size"], size]
    assert tensors(specctl_demo.target_dir())["lm_head.weight"] == [config_["vocab_size"], size]


def test_both_folders_hold_the_same_tokenizer():
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (specctl_demo.target_dir() / name).read_bytes() == (specctl_demo.draft_dir() / name).read_bytes()


def test_tokenizer_fits_the_vocabulary():
    tokenizer = json.loads((specctl_demo.target_dir() / "tokenizer.json").read_text())
    ids = tokenizer["model"]["vocab"].values()
    assert max(ids) < config(specctl_demo.target_dir())["vocab_size"]
    special = {entry["content"]: entry["id"] for entry in tokenizer["added_tokens"]}
    assert special == {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2}
