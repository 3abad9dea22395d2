"""A small evaluation host in a folder: target, prompts, hidden states, checkpoint and run directory, all real files."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dflash_tui.checkpoints.family import declared_family
from dflash_tui.checkpoints.files import local_files
from dflash_tui.checkpoints.opening import read_structure
from dflash_tui.checkpoints.settings import resolve_settings
from dflash_tui.harness import rundir
from dflash_tui.harness.cache import write_features
from dflash_tui.harness.features import FORMAT, read_features_header
from dflash_tui.harness.target_files import TargetFiles, open_target
from dflash_tui.harness.vocabulary import Vocabulary
from dflash_tui.records.block import BlockRecord
from dflash_tui.records.checkpoint import Audit
from dflash_tui.records.codec import loads
from dflash_tui.records.manifest import CheckpointRef, Manifest, PromptRef, TargetRef
from dflash_tui.records.settings import DrafterSettings
from tests.cases import case_root, known

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Golden:
    """A case of the reference vectors; only those of the dflash family have settings."""

    folder: Path
    config: dict[str, Any]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def is_v1(self) -> bool:
        return declared_family(self.config) == "dflash"

    def tensors(self, file: str) -> dict[str, Tensor]:
        return load_file(self.folder / f"{file}.safetensors")

    @property
    def settings(self) -> DrafterSettings:
        return settings_of(self.folder / "model.safetensors", self.config)

    @property
    def vocabulary(self) -> Vocabulary:
        target = self.tensors("target")
        return Vocabulary(target["embed_tokens.weight"], target["lm_head.weight"])

    @property
    def anchors(self) -> list[int]:
        return sorted(int(key.split(".")[1]) for key in self.tensors("expected") if key.startswith("draft_logits."))


def goldens(*roots: Path) -> Iterator[Golden]:
    """Every case that is there (in `roots`, where they are given), whatever its family."""
    for root in roots or (case_root(),):
        for path in sorted((root / "golden").glob("*/config.json")):
            yield Golden(path.parent, json.loads(path.read_text(encoding="utf-8")))


def golden(name: str) -> Golden:
    folder = known(f"golden/{name}")
    return Golden(folder, json.loads((folder / "config.json").read_text(encoding="utf-8")))


def settings_of(checkpoint: Path, config: dict[str, Any]) -> DrafterSettings:
    return resolve_settings(read_structure(local_files(checkpoint)), [("config.json", config)], {})


def target_folder(folder: Path, case: Golden) -> TargetFiles:
    """A target's folder that holds the case's embedding and head, which is all that drafting needs of it."""
    folder.mkdir(parents=True)
    save_file({f"model.{k}" if k.startswith("embed") else k: v for k, v in case.tensors("target").items()},
              folder / "model.safetensors")  # fmt: skip
    config = {"architectures": ["Qwen3ForCausalLM"], "vocab_size": case.config["vocab_size"], "model_type": "qwen3"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return open_target(folder)


def metadata(target: TargetFiles, prompt: str, prompt_len: int, taps: Sequence[int]) -> dict[str, str]:
    return {
        "format": FORMAT,
        "target": target.name,
        "target_config_sha256": target.config_sha256,
        "layer_ids": ",".join(map(str, taps)),
        "prompt_id": prompt,
        "prompt_len": str(prompt_len),
        "prompt_sha256": hashlib.sha256(text_of(prompt).encode()).hexdigest(),
        "created": "2026-05-18T14:02:11Z",
    }


def text_of(prompt: str) -> str:
    return f"Write {prompt}.\n"


@dataclass(frozen=True)
class World:
    """Paths of one evaluation host. Prompts are named p0, p1, …; the last one has no hidden states."""

    root: Path
    case: Golden
    target: TargetFiles
    manifest: Manifest

    @property
    def hidden_states(self) -> Path:
        return self.root / "hidden_states"

    @property
    def run_dir(self) -> Path:
        return self.root / "runs" / self.manifest.run_id

    def write(self, manifest: Manifest | None = None) -> Path:
        """A new run directory with the manifest and the checkpoint in it."""
        run_dir = self.run_dir
        run_dir.mkdir(parents=True)
        shutil.copy(self.case.folder / "model.safetensors", run_dir / "model.safetensors")
        rundir.write(run_dir / rundir.MANIFEST, manifest or self.manifest)
        return run_dir

    def blocks(self) -> list[BlockRecord]:
        return read_blocks(self.run_dir)


def world(root: Path, *, prompts: int = 3, blocks: int = 30, name: str = "v1-small", repeat: int = 1) -> World:
    """`repeat` lengthens each completion, to make an evaluation that lasts."""
    case = golden(name)
    inputs, settings = case.tensors("inputs"), case.settings
    target = target_folder(root / "target", case)
    states = root / "hidden_states"
    states.mkdir()
    refs = []
    ids = [f"p{i}" for i in range(prompts + 1)]
    for index, prompt in enumerate(ids):
        digest = hashlib.sha256(text_of(prompt).encode()).hexdigest()
        if index == prompts:
            refs.append(PromptRef(prompt, digest))
            continue
        tokens = inputs["token_ids"].roll(index).repeat(repeat).tolist()
        hidden = inputs["context_features"].roll(index, 0)
        hidden = hidden.repeat(-(-len(tokens) // hidden.shape[0]), 1)[: len(tokens) - 1].bfloat16()
        path = write_features(states, prompt, hidden, tokens, metadata(target, prompt, 10, settings.taps))
        refs.append(PromptRef(prompt, digest, path.name, read_features_header(path).header_id))
    lines = [json.dumps({"id": prompt, "prompt": text_of(prompt), "token_ids": [1, 2, 3]}) for prompt in ids]
    (root / "prompts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    manifest = Manifest(
        version=1,
        run_id="tiny-step4000-full-1",
        created_at="2026-05-20T10:00:00Z",
        preset="full" if blocks == 30 else "quick",
        anchors="spaced",
        blocks_per_prompt=blocks,
        block_size=settings.block_size,
        checkpoint=CheckpointRef(
            "ct200", "/runs/step_4000/model.safetensors", "model.safetensors", 4000, "tiny", 1, 0.0
        ),
        drafter=settings,
        audit=Audit("dflash", "safetensors", 0, ()),
        target=TargetRef(os.fspath(target.folder), target.name, target.config_sha256),
        prompts_path=os.fspath(root / "prompts.jsonl"),
        prompts=tuple(refs),
        hidden_states=os.fspath(states),
        threads=1,
        request_id="r",
        harness="test",
        tool_version="0",
    )
    return World(root, case, target, manifest)


def with_checkpoint(manifest: Manifest, **changes: Any) -> Manifest:
    return replace(manifest, checkpoint=replace(manifest.checkpoint, **changes))


def harness(*argv: str | Path, stdin: str = "", python: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run the harness as a real command, outside the repository."""
    environment = {**os.environ, "PYTHONPATH": os.fspath(REPOSITORY), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *python, "-m", "dflash_tui.harness", *(os.fspath(word) for word in argv)]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=120, cwd="/", env=environment, check=False
    )


def read_blocks(run_dir: Path) -> list[BlockRecord]:
    path = run_dir / rundir.BLOCKS
    return [loads(BlockRecord, line, str(path)) for line in rundir.lines(path)]


def needed(module: str) -> Any:
    """An optional package; its absence skips the test, or fails it where everything is required."""
    try:
        return importlib.import_module(module)
    except ImportError:
        if os.environ.get("DFLASH_REQUIRE_ALL") == "1":
            raise
        pytest.skip(f"{module} is not installed")


def near(one: Sequence[BlockRecord], other: Sequence[BlockRecord], tolerance: float = 1e-4) -> bool:
    """Equal ranks, trees and anchors, and log-probabilities within the tolerance."""
    return len(one) == len(other) and all(
        (a.prompt, a.anchor, a.horizon, a.ranks, a.tree) == (b.prompt, b.anchor, b.horizon, b.ranks, b.tree)
        and all(
            x is y or (x is not None and y is not None and abs(x - y) < tolerance)
            for x, y in zip(a.logprobs, b.logprobs, strict=True)
        )
        for a, b in zip(one, other, strict=True)
    )


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
