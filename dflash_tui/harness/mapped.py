"""Tensors that lie in files: mapped, never read until used, never written, nothing unpickled."""

from __future__ import annotations

import math
import mmap
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from dflash_tui.harness.errors import HarnessError

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
"""safetensors' spelling to torch's."""


class Maps:
    """Open maps, one per file. A map pins the file's inode, so a renamed or replaced file is still the one mapped."""

    def __init__(self) -> None:
        self._maps: dict[Path, mmap.mmap] = {}

    def tensor(
        self, path: Path, dtype: str, shape: Sequence[int], offset: int, strides: Sequence[int] | None = None
    ) -> Tensor:
        """The tensor whose little-endian elements start at byte `offset`; `strides` in elements (None: C order).

        A view of the file: reading pages in what is used. Raises HarnessError when the file is shorter than that.
        """
        kind = DTYPES.get(dtype)
        if kind is None:
            raise HarnessError(f"{path}: dtype {dtype} is not one that can be evaluated")
        steps = tuple(strides) if strides is not None else _contiguous(shape)
        if 0 in shape:
            return torch.empty(tuple(shape), dtype=kind)
        count = 1 + sum((size - 1) * step for size, step in zip(shape, steps, strict=True))
        size = count * kind.itemsize
        data = self._map(path)
        if offset + size > len(data):
            raise HarnessError(f"{path}: ends at byte {len(data)}, a tensor needs byte {offset + size}; truncated?")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch has no read-only tensors and says so every time
            flat = torch.frombuffer(data, dtype=torch.uint8, count=size, offset=offset)
        if flat.data_ptr() % kind.itemsize:
            flat = flat.clone()  # safetensors promises no alignment
        return flat.view(kind).as_strided(tuple(shape), steps)

    def _map(self, path: Path) -> mmap.mmap:
        if path not in self._maps:
            try:
                with path.open("rb") as stream:
                    self._maps[path] = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as error:
                raise HarnessError(f"{path}: cannot be mapped ({error})") from error
        return self._maps[path]


def fill(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give every parameter of a model (built on the meta device) its tensor: no copy, the stored dtype kept.

    Raises HarnessError naming every parameter that is missing or of another shape.
    """
    wrong: list[str] = []
    for name, parameter in list(model.named_parameters()):
        tensor = tensors.get(name)
        if tensor is None:
            wrong.append(f"{name}: missing")
        elif tensor.shape != parameter.shape:
            wrong.append(f"{name}: {tuple(tensor.shape)}, expected {tuple(parameter.shape)}")
        elif not tensor.is_floating_point():
            wrong.append(f"{name}: {tensor.dtype}, expected floating point")
        else:
            owner, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(owner), leaf, nn.Parameter(tensor, requires_grad=False))
    if wrong:
        raise HarnessError(f"{len(wrong)} of the model's tensors do not fit: {'; '.join(wrong[:8])}")


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
