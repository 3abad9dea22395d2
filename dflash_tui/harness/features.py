"""The header of a hidden-state file: what it says of itself, without its data and without torch.

One safetensors file a prompt, ``<prompt id>.safetensors``: `hidden` [T, K·D], the tapped states of the first T tokens,
taps side by side in the order of `layer_ids` (z-lab ids: the output of block id, HF hidden_states[id + 1]); `tokens`
int32 [N], prompt and completion. T may be less than N: features at or after the last anchor are never read."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from dflash_tui.checkpoints.errors import CheckpointError
from dflash_tui.checkpoints.files import LocalFiles
from dflash_tui.checkpoints.safetensors import read_safetensors
from dflash_tui.checkpoints.structure import TensorInfo
from dflash_tui.harness.errors import ForeignFeatures, PromptRefused
from dflash_tui.records.settings import DrafterSettings

FORMAT = "dflash-tui.features/1"
HIDDEN_DTYPES = ("BF16", "F16", "F32")
IDENTITY = ("target", "target_config_sha256", "layer_ids", "prompt_id", "prompt_sha256", "created")


@dataclass(frozen=True)
class FeaturesHeader:
    """`identity` holds those of IDENTITY that the file records; a file without any is usable, its origin unknown.

    `layer_ids` is None when unrecorded. `header_id` is the SHA-256 of the header's bytes: a cheap identity of the file.
    """

    path: Path
    hidden: TensorInfo
    tokens: TensorInfo
    prompt_len: int
    layer_ids: tuple[int, ...] | None
    identity: dict[str, str]
    header_id: str

    @property
    def completion_len(self) -> int:
        """n, the completion's tokens (EOS included where it was reached)."""
        return self.tokens.shape[0] - self.prompt_len


def features_path(folder: Path, prompt_id: str) -> Path:
    """Where the hidden states of a prompt lie."""
    return folder / f"{prompt_id}.safetensors"


def read_features_header(path: Path) -> FeaturesHeader:
    """Read and check the header. Raises PromptRefused with the reason."""
    tensors, metadata, header_id = _read(path)
    hidden, tokens = tensors.get("hidden"), tensors.get("tokens")
    if hidden is None or tokens is None:
        raise PromptRefused(f'{path}: tensors {", ".join(tensors)[:120]}; expected "hidden" and "tokens"')
    if hidden.dtype not in HIDDEN_DTYPES or len(hidden.shape) != 2:
        raise PromptRefused(f"{path}: hidden is {hidden.dtype} {hidden.shape}; expected [T, K·D] in BF16, F16 or F32")
    if tokens.dtype not in ("I32", "I64") or len(tokens.shape) != 1:
        raise PromptRefused(f"{path}: tokens is {tokens.dtype} {tokens.shape}; expected int32 [N]")
    stated = metadata.get("format", FORMAT)
    if stated != FORMAT:
        raise PromptRefused(f"{path}: format {stated!r}; this version reads {FORMAT}")
    prompt_len = metadata.get("prompt_len", "")
    if not prompt_len.isdecimal() or not 0 < int(prompt_len) <= tokens.shape[0]:
        raise PromptRefused(
            f"{path}: metadata prompt_len is {prompt_len!r}; expected the prompt's token count, 1 … {tokens.shape[0]}"
        )
    return FeaturesHeader(
        path=path,
        hidden=hidden,
        tokens=tokens,
        prompt_len=int(prompt_len),
        layer_ids=_layer_ids(path, metadata.get("layer_ids")),
        identity={key: metadata[key] for key in IDENTITY if key in metadata},
        header_id=header_id,
    )


def check_identity(header: FeaturesHeader, settings: DrafterSettings, prompt_sha256: str, config_sha256: str) -> None:
    """Refuse features of other layers, another width, another target or another text. Raises ForeignFeatures.

    More layers than the drafter taps do no harm where the file records them: `tap_columns` finds its own. What the file
    does not record is not checked here; that its identity is unknown is a caveat of the result.
    """
    stored = header.layer_ids if header.layer_ids is not None else settings.taps
    if not set(settings.taps) <= set(stored):
        raise ForeignFeatures(
            f"{header.path}: layers {_list(stored)}, the drafter taps {_list(settings.taps)}; "
            "capture again for these taps"
        )
    wanted = len(stored) * settings.hidden_size
    if header.hidden.shape[1] != wanted:
        raise ForeignFeatures(
            f"{header.path}: {header.hidden.shape[1]} values a token, the drafter needs {wanted} "
            f"({len(stored)} taps of {settings.hidden_size}); capture again for these taps"
        )
    for key, expected, what in (
        ("prompt_sha256", prompt_sha256, "another text than the prompt set's"),
        ("target_config_sha256", config_sha256, "another target than the evaluation's"),
    ):
        found = header.identity.get(key)
        if found is not None and expected and found != expected:
            raise ForeignFeatures(f"{header.path}: made from {what} ({key} {found[:12]}…, expected {expected[:12]}…)")


def tap_columns(header: FeaturesHeader, taps: tuple[int, ...]) -> tuple[int, ...] | None:
    """Which of the file's layers, by position, a drafter's taps are, in tap order; None when they are all of them as
    they lie. `check_identity` has seen that each is there."""
    if header.layer_ids is None or header.layer_ids == taps:
        return None
    return tuple(header.layer_ids.index(tap) for tap in taps)


def _read(path: Path) -> tuple[dict[str, TensorInfo], dict[str, str], str]:
    """Tensors, metadata strings and the header's SHA-256."""
    files = LocalFiles(path.parent, (path.name,))
    try:
        tensors = dict(read_safetensors(files, path.name).tensors)
        length = int.from_bytes(files.read(path.name, 0, 8), "little")
        header = files.read(path.name, 8, length)
    except CheckpointError as error:
        raise PromptRefused(f"{path.parent}/{error}" if not str(error).startswith("/") else str(error)) from error
    metadata = json.loads(header).get("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise PromptRefused(f"{path}: its metadata is not an object of strings")
    return tensors, metadata, hashlib.sha256(header).hexdigest()


def _layer_ids(path: Path, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise PromptRefused(f'{path}: layer_ids is {text!r}; expected numbers such as "1,3,4"') from error


def _list(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids))
