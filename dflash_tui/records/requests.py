"""What is asked of the harness besides an evaluation (that is `records.manifest`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dflash_tui.records.settings import DrafterSettings


@dataclass(frozen=True)
class CaptureRequest:
    """``capture.json``: make the hidden states of `prompts` (ids; empty: all of the set) that have none yet.

    `target` is a HF folder, `taps` z-lab layer ids, `hidden_states` the folder that receives the files.
    `target_name` defaults to the folder's name.
    """

    target: str
    prompts_path: str
    hidden_states: str
    taps: tuple[int, ...]
    prompts: tuple[str, ...] = ()
    target_name: str = ""
    max_new_tokens: int = 512
    threads: int = 1


@dataclass(frozen=True)
class SurveyRequest:
    """Standard input of ``survey``. A path that is not given is not looked at.

    `hidden_states` are folders; each is looked through. `overrides` are drafter settings by field name, as the user
    gave them for the watched training; a `foreign` drafter belongs to none, which only changes what is advised where
    its settings are not known. `settings` are those of a checkpoint that lies elsewhere still, for what depends on
    them here. `prompts_asked` limits the set to its first so many; `prompts` are ids, asked instead.
    """

    checkpoint: str | None = None
    target: str | None = None
    prompts_path: str | None = None
    hidden_states: tuple[str, ...] = ()
    space_at: str | None = None
    drafter_config: str | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    foreign: bool = False
    settings: DrafterSettings | None = None
    prompts_asked: int | None = None
    prompts: tuple[str, ...] = ()
    weights_id: bool = True
