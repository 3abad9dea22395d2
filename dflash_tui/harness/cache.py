"""Hidden states of a prompt, with their data: checked before they are used, written once."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dflash_tui.harness.errors import FeaturesThere, HarnessError, PromptRefused
from dflash_tui.harness.features import FeaturesHeader, features_path, tap_columns
from dflash_tui.harness.mapped import Maps
from dflash_tui.records.settings import DrafterSettings

SCAN_ROWS = 512


@dataclass(frozen=True)
class Features:
    """`hidden` [T, K·D] in its stored dtype and `tokens` [N] (int64), both of one prompt; mapped, and copied only where
    a drafter taps some of the file's layers."""

    header: FeaturesHeader
    hidden: Tensor
    tokens: Tensor


def open_features(header: FeaturesHeader, maps: Maps, taps: tuple[int, ...] | None = None) -> Features:
    """Map the data of a checked header; of a file with more layers than `taps`, those. Raises HarnessError when the
    file is shorter than its header says."""
    parts = (header.hidden, header.tokens)
    hidden, tokens = (maps.tensor(header.path, part.dtype, part.shape, part.offset) for part in parts)
    columns = None if taps is None else tap_columns(header, taps)
    if columns is not None and header.layer_ids is not None:
        layers = hidden.view(hidden.shape[0], len(header.layer_ids), -1)
        hidden = layers[:, list(columns)].flatten(1)
    return Features(header, hidden, tokens.long())


def check_data(features: Features, settings: DrafterSettings, vocabulary: int, last_anchor: int) -> None:
    """Refuse features that end too early, hold NaN or infinity, or a tap that is all zero somewhere; refuse tokens
    outside the vocabulary. Raises PromptRefused."""
    path, hidden, tokens = features.header.path, features.hidden, features.tokens
    if hidden.shape[0] < last_anchor:
        raise PromptRefused(f"{path}: features of {hidden.shape[0]} tokens, the last anchor needs {last_anchor}")
    lowest, highest = (int(bound) for bound in torch.aminmax(tokens))
    if lowest < 0 or highest >= vocabulary:
        raise PromptRefused(f"{path}: token ids {lowest} … {highest}, the vocabulary has {vocabulary}")
    taps = len(settings.taps)
    for start in range(0, hidden.shape[0], SCAN_ROWS):
        rows = hidden[start : start + SCAN_ROWS].reshape(-1, taps, settings.hidden_size)
        low, high = torch.aminmax(rows, dim=2)
        spread = high.float() - low.float()  # NaN when either is NaN, or when both are the same infinity
        if not bool(torch.isfinite(spread).all()):
            bad = (~torch.isfinite(spread)).nonzero()[0].tolist()
            raise PromptRefused(f"{path}: NaN or infinity at token {start + bad[0]}, layer {settings.taps[bad[1]]}")
        empty = ((low == 0) & (high == 0)).nonzero()
        if empty.shape[0]:
            row, tap = empty[0].tolist()
            raise PromptRefused(
                f"{path}: all zero at token {start + row}, layer {settings.taps[tap]}; capture it again"
            )


def write_features(folder: Path, prompt_id: str, hidden: Tensor, tokens: list[int], metadata: dict[str, str]) -> Path:
    """Write a hidden-state file under its final name at once: temporary name, flush to disk, link.

    `hidden` [T, K·D] is stored in its dtype. Raises PromptRefused when the name is taken (nothing is overwritten, also
    no link to nothing), HarnessError when the file cannot be written.
    """
    final = features_path(folder, prompt_id)
    temporary = final.with_name(f".{final.name}.{os.getpid()}.part")
    parts = {"hidden": hidden, "tokens": torch.tensor(tokens, dtype=torch.int32)}
    header: dict[str, object] = {"__metadata__": metadata}
    offset = 0
    for name, part in parts.items():
        spelling = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32", torch.int32: "I32"}[part.dtype]
        header[name] = {
            "dtype": spelling,
            "shape": list(part.shape),
            "data_offsets": [offset, offset + part.nbytes],
        }
        offset += part.nbytes
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    try:
        with temporary.open("xb") as stream:
            stream.write(len(text).to_bytes(8, "little") + text)
            for part in parts.values():
                stream.write(_bytes(part))
            stream.flush()
            os.fsync(stream.fileno())
        os.link(temporary, final)  # unlike a rename, this fails where a file is already
    except FileExistsError as error:
        raise FeaturesThere(
            f"{final}: exists already; hidden states are never overwritten, move it away first"
        ) from error
    except OSError as error:
        raise HarnessError(f"{final}: cannot be written ({error.strerror})") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
    return final


def _bytes(tensor: Tensor) -> bytearray:
    """Little-endian C-order bytes, without numpy."""
    data = bytearray(tensor.nbytes)
    if data:
        torch.frombuffer(data, dtype=torch.uint8).copy_(tensor.contiguous().view(torch.uint8).flatten())
    return data
