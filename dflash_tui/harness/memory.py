"""How much memory work takes, and whether it is there once its turn has come. Torch-free: loading comes after."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path

from dflash_tui.checkpoints.errors import CheckpointError
from dflash_tui.checkpoints.family import KNOWN_EXTRAS
from dflash_tui.checkpoints.files import local_files
from dflash_tui.checkpoints.keys import canonical_name
from dflash_tui.checkpoints.opening import read_structure
from dflash_tui.checkpoints.structure import Structure
from dflash_tui.harness import rundir
from dflash_tui.harness.errors import HarnessError
from dflash_tui.harness.features import FeaturesHeader, read_features_header
from dflash_tui.harness.machine import memory_left
from dflash_tui.harness.target_files import TargetFiles, open_target
from dflash_tui.records.requests import CaptureRequest
from dflash_tui.records.settings import DrafterSettings

TORCH_BYTES = 512 << 20
"""Roughly what an idle interpreter with torch takes."""

_HEAD_ROWS = 8192
_FLOAT = 4


def drafting(settings: DrafterSettings, headers: Sequence[FeaturesHeader], held: int = 0) -> int:
    """An estimate of an evaluation's anonymous memory, bytes. Weights and features stay in the page cache but for
    `held` bytes (see `copied`); what counts is the float32 copy of one matrix at a time, one prompt's context in
    float32 and torch itself."""
    hidden, taps = settings.hidden_size, len(settings.taps)
    matrix = max(hidden * hidden * taps, hidden * settings.intermediate_size)
    rows = max((header.hidden.shape[0] for header in headers), default=0)
    shared = 2 * settings.num_hidden_layers * settings.num_key_value_heads * settings.head_dim
    return TORCH_BYTES + held + _FLOAT * (matrix + rows * (taps * hidden + 3 * hidden + shared))


def copied(structure: Structure) -> int:
    """Bytes of a checkpoint's tensors that can't stay in the page cache: those in pieces, and those that don't begin at
    a multiple of their element's size (legacy files, the archives in a DCP folder). Of what may not be the drafter's
    own (embedding, head), which is only looked through, the largest."""
    own, others = [0], [0]
    for name, info in structure.tensors.items():
        if info.pieces or info.offset % info.itemsize:
            (others if canonical_name(name) in KNOWN_EXTRAS else own).append(info.nbytes)
    return sum(own) + max(others)


def capturing(target: TargetFiles, taps: int, new_tokens: int) -> int:
    """The same of a capture: one matrix of the target (or a piece of its head) at a time, the cache of keys and values
    twice over while it grows, and the tapped states. Raises Refused where the target's config lacks a number."""
    hidden, layers = int(target.number("hidden_size")), int(target.number("num_hidden_layers"))
    matrix = hidden * max(int(target.number("intermediate_size")), _HEAD_ROWS)
    kept = 2 * layers * int(target.number("num_key_value_heads")) * int(target.number("head_dim"))
    return TORCH_BYTES + _FLOAT * (matrix + 2 * new_tokens * (kept + taps * hidden))


def check_evaluation(run_dir: Path) -> None:
    """Refuse to begin what memory has no room for now: it may have waited for hours since it was planned. Raises
    HarnessError with both figures."""
    manifest = rundir.read_manifest(run_dir)
    if manifest.drafter is None:
        return  # what a foreign program takes is not known
    headers: list[FeaturesHeader] = []
    for prompt in manifest.prompts:
        with contextlib.suppress(HarnessError, OSError):  # the evaluation itself says what is wrong with it
            if prompt.features is not None:
                headers.append(read_features_header(Path(manifest.hidden_states) / prompt.features))
    held = 0
    with contextlib.suppress(CheckpointError, OSError):
        held = copied(read_structure(local_files(run_dir / manifest.checkpoint.linked)))
    _check(drafting(manifest.settings, headers, held), "evaluate")


def check_capture(run_dir: Path) -> None:
    """The same of a capture. Raises HarnessError."""
    request = rundir.read(run_dir / rundir.CAPTURE, CaptureRequest)
    try:
        needed = capturing(open_target(Path(request.target)), len(request.taps), request.max_new_tokens)
    except (HarnessError, CheckpointError):
        return  # the capture itself says what is wrong with the target
    _check(needed, "capture")


def _check(needed: int, work: str) -> None:
    left = memory_left()
    if left is not None and left < needed:
        raise HarnessError(
            f"{socket.gethostname()}: {_gib(left)} of memory left now, about {_gib(needed)} needed; "
            f"end something there and {work} again"
        )


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
