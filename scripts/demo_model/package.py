"""Writes the package data: weights in float16, configurations, tokenizer, prompts, checksums."""

import hashlib
import json
import shutil
from pathlib import Path

from safetensors.torch import save_file
from torch import nn
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from .draft import AUX_LAYERS, Draft

PARTS = ("target", "draft", "prompts.json", "SHA256SUMS")


def write(
    folder: Path,
    target: LlamaForCausalLM,
    draft: Draft,
    tokenizer: PreTrainedTokenizerFast,
    prompts: dict[str, list[str]],
) -> None:
    """Fills the empty `folder` with PARTS."""
    for name in ("target", "draft"):
        (folder / name).mkdir()
        tokenizer.save_pretrained(folder / name)
    config = target.config.to_dict() | {"architectures": ["LlamaForCausalLM"], "dtype": "float32"}
    _write_json(folder / "target" / "config.json", config)
    head = config | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": config["vocab_size"],
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(AUX_LAYERS), "use_aux_hidden_state": True},
    }
    _write_json(folder / "draft" / "config.json", head)
    _write_weights(folder / "target", target)
    _write_weights(folder / "draft", draft)
    _write_json(folder / "prompts.json", prompts)
    _write_checksums(folder)


def replace(built: Path, destination: Path) -> None:
    """Moves a complete build over the old one."""
    destination.mkdir(parents=True, exist_ok=True)
    for name in PARTS:
        old = destination / name
        if old.is_dir():
            shutil.rmtree(old)
        shutil.move(built / name, old)


def _write_json(path: Path, data: object) -> None:
    path.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _write_weights(folder: Path, model: nn.Module) -> None:
    tensors = {name: tensor.half().contiguous() for name, tensor in model.state_dict().items()}
    path = folder / "model.safetensors"
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)


def _write_checksums(folder: Path) -> None:
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")
