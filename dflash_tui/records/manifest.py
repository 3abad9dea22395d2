"""``manifest.json`` of a run directory: what was asked, and every fact known at that moment. It is also the request
that the harness carries out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Optional, Tuple

from dflash_tui.records.checkpoint import Audit
from dflash_tui.records.external import ExternalRequest
from dflash_tui.records.facts import Fact
from dflash_tui.records.settings import DrafterSettings

MANIFEST_VERSION = 1


@dataclass(frozen=True)
class CheckpointRef:
    """The evaluated checkpoint. `host`/`path`: where it came from; `linked` its path inside the run directory,
    relative (a file or a folder); `mtime` POSIX seconds; `sha256` of the moved file's bytes (single files)."""

    host: str
    path: str
    linked: str
    step: Optional[int]
    training: str
    size: int
    mtime: float
    quick_id: Optional[str] = None
    weights_id: Optional[str] = None
    sha256: Optional[str] = None
    link_method: str = "hardlink"


@dataclass(frozen=True)
class PromptRef:
    """A prompt that was asked for. `sha256` of its UTF-8 text; `features` the hidden-state file, None when absent;
    `features_id` is the SHA-256 of that file's safetensors header (cheap identity)."""

    id: str
    sha256: str
    features: Optional[str] = None
    features_id: Optional[str] = None


@dataclass(frozen=True)
class TargetRef:
    """The target on the evaluation host: a HF folder. `config_sha256` of its config.json bytes."""

    path: str
    name: str
    config_sha256: str


@dataclass(frozen=True)
class Manifest:
    """`blocks_per_prompt`: 30 (full), 15 (quick), or as many as a result has that this is like; `anchors`: the policy's
    name, "spaced"; `block_size`: tokens in a block as evaluated. `request_id` hashes what makes two evaluations the
    same (weights, resolved settings, target, preset, prompts, cache, harness). `baseline`: the configured baseline that
    this is a run of, "" for any other.

    `external`: the user's own script evaluates. Only then may `drafter` or `audit` be None, for a checkpoint that we
    can't read, and `anchors` "" and `block_size` 0 where only the script knows them.
    """

    version: int
    run_id: str
    created_at: str
    preset: str
    anchors: str
    blocks_per_prompt: int
    block_size: int
    checkpoint: CheckpointRef
    drafter: Optional[DrafterSettings]
    audit: Optional[Audit]
    target: TargetRef
    prompts_path: str
    prompts: Tuple[PromptRef, ...]
    hidden_states: str
    threads: int
    request_id: str
    harness: str
    tool_version: str
    command: Tuple[str, ...] = ()
    versions: Dict[str, str] = field(default_factory=dict)
    facts: Tuple[Fact, ...] = ()
    external: Optional[ExternalRequest] = None
    baseline: str = ""

    @property
    def settings(self) -> DrafterSettings:
        """The drafter's settings, which every evaluation of our own harness has. Raises ValueError without."""
        if self.drafter is None:
            raise ValueError(f"{self.run_id}: its drafter's settings are unknown, which only an own script can do with")
        return self.drafter
