"""A target's HF folder: its config, and which file holds which tensor. Torch-free; headers are read, data is not."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dflash_tui.checkpoints.errors import CheckpointError
from dflash_tui.checkpoints.files import LocalFiles
from dflash_tui.checkpoints.keys import TARGET_PREFIXES
from dflash_tui.checkpoints.opening import read_structure
from dflash_tui.checkpoints.structure import TensorInfo
from dflash_tui.harness.errors import Refused

INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class TargetFiles:
    """`config` is config.json as it is, `text` the part that describes the language model (the same for plain ones)."""

    folder: Path
    config: dict[str, Any]
    config_sha256: str
    tensors: dict[str, TensorInfo]

    @property
    def text(self) -> dict[str, Any]:
        """The language model's config."""
        nested = self.config.get("text_config")
        return nested if isinstance(nested, dict) else self.config

    @property
    def name(self) -> str:
        """What the target calls itself, else its folder's name."""
        stated = self.config.get("_name_or_path")
        return stated if isinstance(stated, str) and stated else self.folder.resolve().name

    @property
    def tied(self) -> bool:
        """Whether the head is the embedding."""
        stated = self.config.get("tie_word_embeddings", self.text.get("tie_word_embeddings"))
        return stated is True or (stated is None and self.find("lm_head.weight") is None)

    def number(self, key: str) -> float:
        """A number of the config. Raises Refused naming the key."""
        value = self.text.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise Refused(f"{self.folder}/config.json: {key} is {value!r}; expected a number")
        return value

    def find(self, name: str) -> TensorInfo | None:
        """A tensor of the language model by its bare name, whatever the nesting."""
        return next((self.tensors[p + name] for p in TARGET_PREFIXES if p + name in self.tensors), None)

    def info(self, name: str) -> TensorInfo:
        """A tensor by its bare name. Raises Refused when there is none."""
        info = self.find(name)
        if info is None:
            raise Refused(
                f"{self.folder}: no tensor {name} among {len(self.tensors)}; a quantised or incomplete target? "
                "The harness needs it in plain safetensors"
            )
        return info

    def place(self, name: str) -> tuple[Path, str, tuple[int, ...], int]:
        """File, dtype, shape and byte offset of a tensor by its bare name. Raises Refused when there is none."""
        info = self.info(name)
        return self.folder / info.file, info.dtype, info.shape, info.offset


def open_target(folder: Path) -> TargetFiles:
    """Config and headers of a target. Raises Refused naming the file: absent, not JSON, or of another size than its
    header says."""
    path = folder / "config.json"
    try:
        raw = path.read_bytes()
        config = json.loads(raw)
    except OSError as error:
        raise Refused(f"{path}: cannot be read ({error.strerror}); the target must be a Hugging Face folder") from error
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path}: not JSON ({error})") from error
    if not isinstance(config, dict):
        raise Refused(f"{path}: expected a JSON object")
    indexed = (folder / INDEX).exists()
    wanted = sorted(p.name for p in folder.glob("*.safetensors")) if indexed else ["model.safetensors"]
    try:
        structure = read_structure(LocalFiles(folder, [INDEX, *wanted] if indexed else wanted))
    except CheckpointError as error:
        raise Refused(f"{folder}: {error}") from error
    return TargetFiles(folder, config, hashlib.sha256(raw).hexdigest(), dict(structure.tensors))


def eos_ids(source: TargetFiles) -> tuple[int, ...]:
    """Token ids that end a completion: generation_config.json's, else config.json's; () where neither says."""
    try:
        generation = json.loads((source.folder / "generation_config.json").read_bytes())
    except (OSError, ValueError):
        generation = {}
    for config in (generation, source.config, source.text):
        stated = config.get("eos_token_id") if isinstance(config, dict) else None
        if isinstance(stated, int):
            return (stated,)
        if isinstance(stated, list) and stated and all(isinstance(i, int) for i in stated):
            return tuple(stated)
    return ()
