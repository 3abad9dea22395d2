"""What is asked of the harness besides an evaluation (that is records.manifest)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Optional, Tuple  # noqa: UP035 - the codec reads these hints at run time on 3.10


@dataclass(frozen=True)
class CaptureRequest:
    """``capture.json``: make the hidden states of `prompts` (ids; empty: all of the set) that have none yet.

    `target` is a HF folder, `taps` z-lab layer ids, `hidden_states` the folder that receives the files.
    `target_name` defaults to the folder's name.
    """

    target: str
    prompts_path: str
    hidden_states: str
    taps: Tuple[int, ...]
    prompts: Tuple[str, ...] = ()
    target_name: str = ""
    max_new_tokens: int = 512
    threads: int = 1


@dataclass(frozen=True)
class SurveyRequest:
    """Standard input of ``survey``. A path that is not given is not looked at.

    `overrides` are drafter settings by field name that the user gave; `prompts_asked` limits the set to its first so many.
    """

    checkpoint: Optional[str] = None
    target: Optional[str] = None
    prompts_path: Optional[str] = None
    hidden_states: Optional[str] = None
    space_at: Optional[str] = None
    drafter_config: Optional[str] = None
    overrides: Dict[str, Any] = field(default_factory=dict)
    prompts_asked: Optional[int] = None
    weights_id: bool = True
