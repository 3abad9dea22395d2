"""Checkpoint cases on disk: found by the product's own listing, with what their `expected.json` says of each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from dflash_tui.checkpoints.errors import CheckpointError
from dflash_tui.checkpoints.files import LocalFiles
from dflash_tui.checkpoints.identity import part_sha256
from dflash_tui.checkpoints.keys import canonical_tensors
from dflash_tui.checkpoints.listing import Candidate, Listed, candidates
from dflash_tui.checkpoints.opening import read_structure
from tests.cases import case_root, known

T = TypeVar("T")


@dataclass(frozen=True)
class Case:
    name: str
    candidate: Candidate
    expected: dict[str, Any]

    @property
    def files(self) -> LocalFiles:
        return LocalFiles(Path(self.candidate.folder), self.candidate.files)

    @property
    def family(self) -> str:
        return str(self.expected["family"]).split()[0]

    @property
    def is_dcp(self) -> bool:
        return "torch.distributed.checkpoint" in self.expected["container"]

    @property
    def source(self) -> str:
        """Name of the golden case whose weights these are."""
        return re.sub(r"^(\.\./)*|\s.*$", "", self.expected["weights_same_as"])


def listed(folder: str) -> list[Listed]:
    kinds = []
    for path in sorted(Path(folder).iterdir()):
        kind = "link" if path.is_symlink() else "folder" if path.is_dir() else "file"
        target = path.readlink().as_posix() if path.is_symlink() else ""
        kinds.append(Listed(path.name, kind, target, path.lstat().st_mtime))  # type: ignore[arg-type]
    return kinds


def checkpoints_in(folder: Path) -> list[Candidate]:
    return candidates(str(folder), listed(str(folder)), listed)


def outcome(action: Callable[[], T]) -> tuple[T | None, str]:
    """(result, "") or (None, the sentence of the refusal); any other exception is a failed test."""
    try:
        return action(), ""
    except CheckpointError as error:
        return None, str(error)


def all_cases() -> list[Case]:
    found: list[Case] = []
    for path in sorted((case_root() / "cases" / "checkpoints").glob("*/expected.json")):
        expected = json.loads(path.read_text())
        inside = checkpoints_in(path.parent)
        if "family" in expected:
            found.append(Case(path.parent.name, inside[-1], expected))
        else:
            by_name = {item.name: item for item in inside}
            names = [name for name, value in expected.items() if isinstance(value, dict)]
            found.extend(Case(f"{path.parent.name}/{name}", by_name[name], expected[name]) for name in names)
    return found


def golden(name: str) -> LocalFiles:
    return LocalFiles(known(f"golden/{name}"), ("config.json", "model.safetensors"))


def golden_config(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(known(f"golden/{name}/config.json").read_text())
    return data


def golden_names() -> list[str]:
    return sorted(path.parent.name for path in (case_root() / "golden").glob("*/model.safetensors"))


@cache
def target_hashes(name: str) -> tuple[str, str]:
    """SHA-256 of the embedding's and the head's bytes of a golden case's target."""
    files = LocalFiles(known(f"golden/{name}"), ("target.safetensors",))
    parts = canonical_tensors(read_structure(files))
    return part_sha256(files, parts["embed_tokens.weight"]), part_sha256(files, parts["lm_head.weight"])
