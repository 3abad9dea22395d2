"""The structure of a file written by `torch.save` (zip format, torch ≥ 1.6), read without torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dflash_tui.checkpoints.errors import CheckpointDamaged, CheckpointUnsupported
from dflash_tui.checkpoints.files import Files
from dflash_tui.checkpoints.pickles import MAX_BYTES, Opaque, Storage, Tensor, plain, read_pickle
from dflash_tui.checkpoints.structure import ITEMSIZE, DirectoryLine, Structure, TensorInfo, check_view
from dflash_tui.checkpoints.zipdir import ZipDirectory, ZipRecord, data_offsets, read_directory

NAMESPACES = ("draft_state_dict", "draft_model", "model", "state_dict", "model_state_dict", "module")
"""Top-level keys that hold a model's tensors; a drafter's own come before general ones."""

_ARGS = ("args", "config", "hparams", "hyper_parameters")
_STEPS = ("step", "global_step", "iteration", "iter")
_NOT_MODEL = re.compile(r"^(optim|scheduler|lr_scheduler|rng|ema_|grad|scaler)")
_LEGACY = (b"\x80\x02\x8a\x0a", b"\x80\x02}", b"\x80\x02c")

_STORAGES: Mapping[str, str] = {
    "FloatStorage": "F32", "DoubleStorage": "F64", "HalfStorage": "F16", "BFloat16Storage": "BF16",
    "LongStorage": "I64", "IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8",
    "BoolStorage": "BOOL",
    "ComplexFloatStorage": "C64", "ComplexDoubleStorage": "C128",
}  # fmt: skip
_DTYPES: Mapping[str, str] = {
    "float32": "F32", "float64": "F64", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL", "uint16": "U16", "uint32": "U32", "uint64": "U64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0", "complex64": "C64", "complex128": "C128",
}  # fmt: skip


def is_zip(files: Files, file: str) -> bool:
    """Whether the file begins as a zip does."""
    return files.size(file) >= 4 and files.read(file, 0, 4) == b"PK\x03\x04"


def is_legacy(files: Files, file: str) -> bool:
    """Whether the file begins as a pickle does (torch.save before 1.6, or `_use_new_zipfile_serialization=False`)."""
    return files.size(file) >= 4 and files.read(file, 0, 4).startswith(_LEGACY)


def read_torch_zip(files: Files, file: str) -> Structure:
    """Structure of a zip checkpoint: the model's tensors, the trainer's args and step.

    Raises CheckpointIncomplete, CheckpointDamaged, or CheckpointUnsupported naming what can't be read (a legacy
    pickle, a compressed zip, TorchScript, a pickled module, sharded or quantised tensors, big-endian data).
    """
    root, directory, prefix = read_root(files, file)
    namespace, found = _model_tensors(root, file)
    return Structure(
        container="torch zip",
        tensors=_places(files, directory, prefix, found),
        files=(file,),
        namespace=namespace,
        directory=directory_lines(directory),
        **_words(root, file),
    )


def directory_lines(directory: ZipDirectory) -> tuple[DirectoryLine, ...]:
    """What the zip's own directory says of its records."""
    return tuple((directory.file, record.name, record.size, record.crc) for record in directory.records.values())


def read_words(files: Files, file: str) -> dict[str, Any]:
    """Only `args`, `step` and their `sources` of a zip checkpoint (for a trainer state that lies beside weights)."""
    root, _, _ = read_root(files, file)
    return _words(root, file)


def read_root(files: Files, file: str) -> tuple[Any, ZipDirectory, str]:
    """(what data.pkl describes, the zip directory, the folder of the archive's records)."""
    if not is_zip(files, file):
        kind = "a legacy (not zip) torch file" if is_legacy(files, file) else "not a torch file"
        raise CheckpointUnsupported(f"{file}: {kind}; load it with torch and save it again with torch.save")
    directory = read_directory(files, file)
    pickles = [name for name in directory.records if name == "data.pkl" or name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise CheckpointUnsupported(f"{file}: a zip without exactly one data.pkl is no torch.save checkpoint")
    prefix = pickles[0][: -len("data.pkl")]
    if any(name.startswith(f"{prefix}code/") for name in directory.records):
        raise CheckpointUnsupported(f"{file}: a TorchScript archive; save the state dict with torch.save instead")
    record = directory.records[pickles[0]]
    if record.size > MAX_BYTES:
        raise CheckpointUnsupported(f"{file}: data.pkl is {record.size} bytes; more than {MAX_BYTES} is not read")
    wanted = [name for name in (pickles[0], f"{prefix}byteorder") if name in directory.records]
    offsets = data_offsets(files, directory, wanted)
    if len(wanted) == 2:
        order = files.read(file, offsets[wanted[1]], min(directory.records[wanted[1]].size, 16))
        if order != b"little":
            raise CheckpointUnsupported(f"{file}: byteorder is {order.decode('ascii', 'replace')!r}, expected 'little'")
    data = files.read(file, offsets[pickles[0]], record.size)
    return read_pickle(data, f"{file}: {pickles[0]}"), directory, prefix


def _model_tensors(root: Any, file: str) -> tuple[str, dict[str, Tensor]]:
    if isinstance(root, Tensor):
        raise CheckpointUnsupported(f"{file}: holds a single tensor, expected a dict of named tensors")
    if isinstance(root, Opaque):
        raise CheckpointUnsupported(f"{file}: is a pickled {root.name} object; save its state_dict() instead")
    if not isinstance(root, dict):
        raise CheckpointUnsupported(f"{file}: holds a {type(root).__name__}, expected a dict of named tensors")
    spaces = {name: root[name] for name in NAMESPACES if isinstance(root.get(name), dict)}
    flat = {key: value for key, value in root.items() if isinstance(value, Tensor) or _is_weight(key, value)}
    for kind in (Tensor, Opaque):
        for name, entries in (*spaces.items(), ("", flat)):
            if any(isinstance(item, kind) for item in entries.values()):
                return name, _named(entries, file, name)
    for name in NAMESPACES:
        if isinstance(root.get(name), Opaque):
            raise CheckpointUnsupported(f"{file}: {name} is a pickled {root[name].name}; save its state_dict() instead")
    return "", {}


def _is_weight(key: Any, value: Any) -> bool:
    """Whether a top-level entry is a parameter of a kind that is not understood, rather than a trainer's object."""
    return isinstance(value, Opaque) and "." in str(key)


def _named(entries: Mapping[Any, Any], file: str, namespace: str) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for key, value in entries.items():
        name = str(key)
        if _NOT_MODEL.match(name) or name.endswith("_extra_state"):
            continue
        if isinstance(value, Tensor):
            found[name] = value
        elif isinstance(value, Opaque):
            place = f"{namespace}.{name}" if namespace else name
            raise CheckpointUnsupported(
                f"{file}: {place} is a {value.name}, not a plain tensor; save a full (gathered, dequantised) state dict"
            )
    return found


def _places(files: Files, directory: ZipDirectory, prefix: str, found: Mapping[str, Tensor]) -> dict[str, TensorInfo]:
    file = directory.file
    records: dict[str, str] = {}
    for name, tensor in found.items():
        records[name] = f"{prefix}data/{tensor.storage.key}"
        if records[name] not in directory.records:
            raise CheckpointDamaged(f"{file}: {name} lies in record {records[name]!r}, which the zip does not hold")
    offsets = data_offsets(files, directory, sorted(set(records.values())))
    return {
        name: _info(file, name, tensor, directory.records[records[name]], offsets[records[name]])
        for name, tensor in found.items()
    }


def _info(file: str, name: str, tensor: Tensor, record: ZipRecord, offset: int) -> TensorInfo:
    dtype = _dtype(file, name, tensor)
    itemsize = ITEMSIZE[dtype]
    expected = tensor.storage.count * (1 if _is_untyped(tensor.storage) else itemsize)
    if record.size != expected:
        raise CheckpointDamaged(
            f"{file}: {name}: its storage {tensor.storage.key} has {record.size} bytes, expected {expected}; "
            "fetch the file again"
        )
    start = offset + max(tensor.offset, 0) * itemsize
    crc = record.crc if record.crc or not record.size else None
    info = TensorInfo(name, dtype, tensor.shape, file, start, tensor.strides, record.size, offset, crc)
    check_view(info, tensor.offset)
    return info


def _is_untyped(storage: Storage) -> bool:
    return storage.kind.rpartition(".")[2] == "UntypedStorage"


def _dtype(file: str, name: str, tensor: Tensor) -> str:
    if tensor.dtype is not None:
        found = _DTYPES.get(tensor.dtype.rpartition(".")[2])
    else:
        found = _STORAGES.get(tensor.storage.kind.rpartition(".")[2])
    if found is None:
        kind = tensor.dtype or tensor.storage.kind
        raise CheckpointUnsupported(f"{file}: {name} is of type {kind}, which can't be read here")
    return found


def _words(root: Any, file: str) -> dict[str, Any]:
    """The keyword arguments args, step and sources of a Structure."""
    words: dict[str, Any] = {"args": None, "step": None, "sources": {}}
    if not isinstance(root, dict):
        return words
    for key in _ARGS:
        value = plain(root[key]) if isinstance(root.get(key), (dict, Opaque)) else None
        if isinstance(value, dict):
            words["args"], words["sources"]["args"] = value, f"{file}: {key}"
            break
    for key in _STEPS:
        step = root.get(key)
        if type(step) is int and 0 <= step < 1 << 63:
            words["step"], words["sources"]["step"] = step, f"{file}: {key}"
            break
    return words
