"""A pickle that says which tensors there are, written as `torch.save` writes it (protocol 2), without torch.

Only names are written where torch would write its own objects; what reads them back under `weights_only=True` knows
every one of them. Opcodes: the standard library's `pickletools`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from dflash_tui.checkpoints.pickles import Global, SetItems, Storage, Tensor

MAX_INT_BITS = 1024
"""The largest whole number that is written; torch's restricted reader takes up to 255 bytes."""

TORCH_NAMES: Mapping[str, str] = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool", "U16": "uint16", "U32": "uint32", "U64": "uint64",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz", "F8_E8M0": "float8_e8m0fnu", "C64": "complex64", "C128": "complex128",
}  # fmt: skip
"""torch's name of each dtype (without its "torch.")."""

TYPED_STORAGES: Mapping[str, str] = {
    "F64": "DoubleStorage", "F32": "FloatStorage", "F16": "HalfStorage", "BF16": "BFloat16Storage",
    "I64": "LongStorage", "I32": "IntStorage", "I16": "ShortStorage", "I8": "CharStorage", "U8": "ByteStorage",
    "BOOL": "BoolStorage", "C64": "ComplexFloatStorage", "C128": "ComplexDoubleStorage",
}  # fmt: skip
"""The class of a storage of elements of one dtype; dtypes that came later have none and lie in untyped storages."""

_SHORT_TUPLES = (b")", b"\x85", b"\x86", b"\x87")


def pickled(value: Any) -> bytes:
    """The pickle of plain data (None, bool, int, float, str, bytes, list, tuple, set, dict), `Global`s and `Tensor`s.

    Raises TypeError for anything else and RecursionError for what is nested without end: the caller chooses what it
    hands over.
    """
    writer = _Writer()
    writer.put(value)
    return b"".join((b"\x80\x02", *writer.parts, b"."))


class _Writer:
    """Opcodes written so far, and the names that later ones refer back to."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.names: dict[str, int] = {}

    def put(self, value: Any) -> None:
        """Write what leaves `value` on the reader's stack."""
        if value is None:
            self.parts.append(b"N")
        elif value is True or value is False:
            self.parts.append(b"\x88" if value else b"\x89")
        elif isinstance(value, int):
            self.parts.append(_whole(value))
        elif isinstance(value, float):
            self.parts.append(struct.pack(">cd", b"G", value))
        elif isinstance(value, str):
            data = value.encode("utf-8", "surrogatepass")
            self.parts.append(struct.pack("<cI", b"X", len(data)) + data)
        elif isinstance(value, bytes):
            self.call("_codecs.encode", value.decode("latin-1"), "latin1")
        elif isinstance(value, Global):
            self.name(value.name)
        elif isinstance(value, Tensor):
            self.tensor(value)
        elif isinstance(value, dict):
            self.items(b"}", [item for pair in value.items() for item in pair], b"u")
        elif isinstance(value, SetItems):
            self.call("builtins.set", list(value))
        elif isinstance(value, list):
            self.items(b"]", value, b"e")
        elif isinstance(value, tuple):
            self.tuple(value)
        else:
            raise TypeError(f"a {type(value).__name__} is not written into a checkpoint")

    def items(self, empty: bytes, items: list[Any], fill: bytes) -> None:
        self.parts.append(empty)
        if items:
            self.parts.append(b"(")
            for item in items:
                self.put(item)
            self.parts.append(fill)

    def tuple(self, items: tuple[Any, ...]) -> None:
        short = len(items) < len(_SHORT_TUPLES)
        self.parts.append(b"" if short else b"(")
        for item in items:
            self.put(item)
        self.parts.append(_SHORT_TUPLES[len(items)] if short else b"t")

    def name(self, name: str) -> None:
        """A global, written out once and then referred to (memo places 0, 1, …)."""
        place = self.names.get(name)
        if place is not None:
            self.parts.append(struct.pack("<cB", b"h", place))
            return
        module, _, attribute = name.rpartition(".")
        self.parts.append(f"c{module}\n{attribute}\n".encode("ascii"))
        if len(self.names) < 256:
            self.names[name] = len(self.names)
            self.parts.append(struct.pack("<cB", b"q", self.names[name]))

    def call(self, name: str, *arguments: Any) -> None:
        self.name(name)
        self.tuple(arguments)
        self.parts.append(b"R")

    def tensor(self, tensor: Tensor) -> None:
        """What torch's `_rebuild_tensor_v2` (v3 where the storage is untyped) is called with."""
        self.name(f"torch._utils._rebuild_tensor_{'v2' if tensor.dtype is None else 'v3'}")
        self.parts.append(b"(")
        self.storage(tensor.storage)
        for value in (tensor.offset, tensor.shape, tensor.strides, False):
            self.put(value)
        self.name("collections.OrderedDict")
        self.parts.append(b")R")
        if tensor.dtype is not None:
            self.name(tensor.dtype)
        self.parts.append(b"tR")

    def storage(self, storage: Storage) -> None:
        self.tuple(("storage", Global(storage.kind), storage.key, "cpu", storage.count))
        self.parts.append(b"Q")


def _whole(value: int) -> bytes:
    if 0 <= value < 256:
        return struct.pack("<cB", b"K", value)
    if -(1 << 31) <= value < 1 << 31:
        return struct.pack("<ci", b"J", value)
    if value.bit_length() > MAX_INT_BITS:
        raise TypeError(f"a whole number of {value.bit_length()} bits is not written into a checkpoint")
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return struct.pack("<cB", b"\x8a", len(data)) + data
