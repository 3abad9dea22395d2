"""What an object that `torch.save` wrote says: its arguments, its step, and where a tensor of it lies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dflash_tui.checkpoints.errors import CheckpointDamaged, CheckpointUnsupported
from dflash_tui.checkpoints.pickles import Opaque, Storage, Tensor
from dflash_tui.checkpoints.plain import plain
from dflash_tui.checkpoints.structure import ITEMSIZE, Extent, TensorInfo, check_view

NAMESPACES = ("draft_state_dict", "draft_model", "model", "state_dict", "model_state_dict", "module")
"""Top-level keys that hold a model's tensors; a drafter's own come before general ones."""

ARGS = ("args", "config", "hparams", "hyper_parameters")
"""Top-level keys that hold the trainer's own arguments, the first that is there."""

STEPS = ("step", "global_step", "iteration", "iter")
"""Top-level keys that hold the step counter, the first that is there."""

NOT_MODEL = re.compile(r"^(optim|scheduler|lr_scheduler|rng|ema_|grad|scaler)")
"""Top-level keys, of tensors or of what holds them, that are a trainer's state and never the model."""

_STORAGES: Mapping[str, str] = {
    "FloatStorage": "F32", "DoubleStorage": "F64", "HalfStorage": "F16", "BFloat16Storage": "BF16",
    "LongStorage": "I64", "IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8",
    "BoolStorage": "BOOL",
    "ComplexFloatStorage": "C64", "ComplexDoubleStorage": "C128",
}  # fmt: skip
_UNREAD: Mapping[str, int] = {
    "UntypedStorage": 1, "QInt8Storage": 1, "QUInt8Storage": 1, "QInt32Storage": 4, "QUInt4x2Storage": 1,
    "QUInt2x4Storage": 1,
}  # fmt: skip
_RESOLVED: Mapping[str, str] = {"neg": ".resolve_neg()", "conj": ".resolve_conj()"}
_DTYPES: Mapping[str, str] = {
    "float32": "F32", "float64": "F64", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL", "uint16": "U16", "uint32": "U32", "uint64": "U64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0", "complex64": "C64", "complex128": "C128",
}  # fmt: skip


def words(root: Any, file: str, prefix: str = "") -> dict[str, Any]:
    """The keyword arguments `args`, `step` and `sources` of a Structure; `prefix` leads to `root` in the file."""
    found: dict[str, Any] = {"args": None, "step": None, "sources": {}}
    if not isinstance(root, dict):
        return found
    for key in ARGS:
        value = plain(root[key]) if isinstance(root.get(key), (dict, Opaque)) else None
        if isinstance(value, dict):
            found["args"], found["sources"]["args"] = value, f"{file}: {prefix}{key}"
            break
    for key in STEPS:
        step = root.get(key)
        if type(step) is int and 0 <= step < 1 << 63:
            found["step"], found["sources"]["step"] = step, f"{file}: {prefix}{key}"
            break
    return found


def storage_nbytes(storage: Storage) -> int | None:
    """Bytes of a whole storage; None when its class is not known."""
    kind = storage.kind.rpartition(".")[2]
    size = ITEMSIZE[_STORAGES[kind]] if kind in _STORAGES else _UNREAD.get(kind)
    return None if size is None else storage.count * size


def tensor_info(name: str, tensor: Tensor, stored: Extent) -> TensorInfo:
    """The tensor whose storage's bytes lie at `stored`.

    Raises CheckpointUnsupported for a dtype that can't be read and for a lazy view (which torch negates or conjugates
    when it is loaded), CheckpointDamaged unless storage and view fit.
    """
    file, storage = stored.file, tensor.storage
    if tensor.unresolved:
        raise CheckpointUnsupported(
            f"{file}: {name} is a lazy view ({tensor.unresolved}), whose bytes are not its values; save it with "
            f"{_RESOLVED.get(tensor.unresolved, '.clone()')}"
        )
    typed = _STORAGES.get(storage.kind.rpartition(".")[2])
    dtype = typed if tensor.dtype is None else known_dtype(tensor.dtype)
    if dtype is None:
        kind = tensor.dtype or storage.kind
        raise CheckpointUnsupported(f"{file}: {name} is of type {kind}, which can't be read here")
    expected = storage_nbytes(storage)
    if stored.nbytes != expected:
        raise CheckpointDamaged(
            f"{file}: {name}: its storage {storage.key} has {stored.nbytes} bytes, expected {expected}; "
            "fetch the file again"
        )
    begin, seen = storage.view or (0, storage.count)
    itemsize = ITEMSIZE[dtype]
    info = TensorInfo(
        name=name,
        dtype=dtype,
        shape=tensor.shape,
        file=file,
        offset=stored.offset + (begin + max(tensor.offset, 0)) * itemsize,
        strides=tensor.strides,
        storage_nbytes=stored.nbytes,
        storage_offset=stored.offset,
        storage_crc=stored.crc,
    )
    check_view(info if storage.view is None else replace(info, storage_nbytes=seen * itemsize), tensor.offset)
    return info


def known_dtype(kind: str) -> str | None:
    """safetensors' spelling of "torch.bfloat16" and the like; None when it can't be read here."""
    return _DTYPES.get(kind.rpartition(".")[2])
