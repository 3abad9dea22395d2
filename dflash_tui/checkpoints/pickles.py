"""What a pickle says, without doing it: an interpreter of pickle opcodes that imports nothing and calls nothing.

Opcodes and their meaning: the standard library's `pickletools`. Plain data comes out as itself; tensors, storages and
namespaces as small records; whatever else the pickle would build is an `Opaque` stub that names it.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from dflash_tui.checkpoints.errors import CheckpointDamaged, CheckpointUnsupported

MAX_BYTES = 64 << 20
MAX_WORK = 6_000_000
"""Opcodes plus items handled in bulk; bounds both the time (about ten seconds) and the memory."""


_MAX_COUNT = 1 << 60  # elements of a storage, and where a view of it begins
_MAX_NAME = 1024  # characters of a global's name, and of a storage's key
_MAX_METADATA = 8  # entries that a tensor's has
_MAX_PLACES = 1 << 32  # of the memo: what its binary opcodes can name
_MAX_BITS = 1024  # of a whole number that is written out
_KEY_BITS, _TUPLE_BITS, _TUPLE_ITEMS = 60, 16, 4
"""Whole numbers that are keys: larger ones, alone or in a tuple, can be chosen so that all have the same hash."""


@dataclass(frozen=True)
class Global:
    """A name that the pickle would import: "module.qualname"."""

    name: str


class Opaque:
    """An object of a class that is not understood. `state` is what it would restore its attributes from, if a dict;
    `parts` the same, if a tuple."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state: dict[Any, Any] | None = None
        self.parts: tuple[Any, ...] | None = None

    def __repr__(self) -> str:
        return f"<opaque {self.name}>"


class SetItems(list[Any]):
    """The items of a set, which Python may not be able to hash, in the pickle's order."""


class FrozenSetItems(list[Any]):
    """The same of a frozenset."""


@dataclass(frozen=True)
class Storage:
    """A torch storage: `kind` is its class ("torch.FloatStorage"), `key` its record "data/<key>", `count` its elements
    (bytes for "torch.storage.UntypedStorage"). Old torch had views of storages: `view` is (first element, elements) of
    what a tensor then sees of it."""

    kind: str
    key: str
    count: int
    view: tuple[int, int] | None = None


@dataclass(frozen=True)
class Tensor:
    """A view of a storage, in elements. `dtype` ("torch.float8_e4m3fn") is given where the storage is untyped.

    `unresolved` says what would still be done to the elements when they are read, as in "neg"; "" where nothing is.
    """

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str | None = None
    unresolved: str = ""


_MARK = object()
_EMPTY: Mapping[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_SET": SetItems,
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
}  # fmt: skip
_CONSTANTS = frozenset((
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
    "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8",
    "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8",
))  # fmt: skip
_GETS = frozenset(("GET", "BINGET", "LONG_BINGET"))
_PUTS = frozenset(("PUT", "BINPUT", "LONG_BINPUT"))
_SILENT = frozenset(("PROTO", "FRAME", "READONLY_BUFFER"))
_TUPLES: Mapping[str, int] = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_DICTS = frozenset(("collections.OrderedDict", "collections.defaultdict", "builtins.dict", "__builtin__.dict"))
_LISTS: Mapping[str, Callable[[Any], Any]] = {
    f"{module}.{kind}": made
    for module in ("builtins", "__builtin__")
    for kind, made in (("list", list), ("tuple", tuple), ("set", SetItems), ("frozenset", FrozenSetItems))
}


def read_pickle(data: bytes, where: str) -> Any:
    """The object a pickle describes, as plain data and the records above. Nothing is imported or run.

    Raises CheckpointDamaged (not a pickle, or cut), CheckpointUnsupported (too large to be read safely).
    """
    if len(data) > MAX_BYTES:
        raise CheckpointUnsupported(f"{where}: a pickle of {len(data)} bytes; more than {MAX_BYTES} is not read")
    return _interpret(data, where)[0]


class PickleStream(Protocol):
    """A pickle whose length isn't known, read on as far as its end mark. What `read` and `readline` raise passes."""

    def read(self, size: int, /) -> bytes:
        """The next `size` bytes."""
        ...

    def readline(self) -> bytes:
        """The next bytes up to and with a line feed."""
        ...

    def tell(self) -> int:
        """Bytes read so far."""
        ...


def read_pickle_stream(stream: PickleStream, where: str) -> tuple[Any, dict[str, Storage]]:
    """As read_pickle, up to the end mark, behind which the stream stands then; and every storage named in it, by key.

    Storages of objects that aren't understood are among them. The stream bounds the bytes.
    """
    return _interpret(stream, where)


def _interpret(data: bytes | PickleStream, where: str) -> tuple[Any, dict[str, Storage]]:
    machine = _Machine(where)
    operations: Iterator[tuple[pickletools.OpcodeInfo, Any, int | None]] = pickletools.genops(data)  # type: ignore[arg-type]
    try:
        for opcode, argument, _ in operations:
            if opcode.name == "STOP":
                return machine.pop(), machine.storages
            machine.step(opcode.name, argument)
    except (
        ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RecursionError, MemoryError, struct.error
    ) as error:  # fmt: skip
        raise CheckpointDamaged(f"{where}: not a readable pickle ({type(error).__name__}: {error})") from error
    raise CheckpointDamaged(f"{where}: the pickle ends before its end mark")


class _Machine:
    """The pickle stack machine. `step` does one opcode; ValueError, IndexError and the like mean a damaged pickle."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.storages: dict[str, Storage] = {}
        self.work = 0

    def spend(self, amount: int) -> None:
        self.work += amount
        if self.work > MAX_WORK:
            raise CheckpointUnsupported(f"{self.where}: the pickle holds too many objects to be read safely")

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise ValueError("a mark where a value should be")
        return value

    def top(self) -> Any:
        value = self.stack[-1]
        if value is _MARK:
            raise ValueError("a mark where a value should be")
        return value

    def pop_mark(self) -> list[Any]:
        items: list[Any] = []
        while (value := self.stack.pop()) is not _MARK:
            items.append(value)
        items.reverse()
        return items

    def step(self, name: str, argument: Any) -> None:
        self.spend(1)
        if name in _GETS:
            self.stack.append(self.memo[int(argument)])
        elif name in _PUTS:
            place = int(argument)
            if not 0 <= place < _MAX_PLACES:
                raise ValueError("a place in the memo that no pickle has")
            self.memo[place] = self.top()
        elif name in _CONSTANTS:
            self.stack.append(argument)
        elif name in _EMPTY:
            self.stack.append(_EMPTY[name]())
        elif name in _TUPLES:
            count = _TUPLES[name]
            items = [self.pop() for _ in range(count)]
            self.stack.append(tuple(reversed(items)))
        elif name in _SILENT:
            return
        else:
            handler = _HANDLERS.get(name)
            if handler is None:
                raise ValueError(f"opcode {name}")
            handler(self, argument)

    def set_items(self, items: list[Any]) -> None:
        target = self.top()
        if not isinstance(target, dict):
            return
        for key, value in zip(items[0::2], items[1::2], strict=True):
            target[_key(key)] = value

    def append_items(self, items: list[Any]) -> None:
        target = self.top()
        if isinstance(target, list):
            target.extend(items)

    def build(self) -> None:
        state = self.pop()
        target = self.top()
        if isinstance(state, tuple) and len(state) == 2 and isinstance(state[0], dict):
            state = state[0]
        if isinstance(target, Opaque) and isinstance(state, dict):
            target.state = state
        elif isinstance(target, Opaque) and isinstance(state, tuple):
            target.parts = state

    def construct(self, function: Any, arguments: Any) -> Any:
        """What calling `function` would give, from a table of understood names; nothing is called."""
        name = function.name if isinstance(function, Global) else "an object"
        if not isinstance(arguments, tuple):
            arguments = ()
        if name in _DICTS:
            return self.pairs(arguments)
        if name in _LISTS:
            items = arguments[0] if arguments and isinstance(arguments[0], (list, tuple)) else ()
            self.spend(len(items))
            return _LISTS[name](items)
        if name == "_codecs.encode" and len(arguments) == 2 and arguments[1] == "latin1":  # bytes, until protocol 3
            self.spend(len(arguments[0]) >> 4)
            return arguments[0].encode("latin-1")
        if name == "torch.Size" and arguments and isinstance(arguments[0], (list, tuple)):
            self.spend(len(arguments[0]))
            return tuple(arguments[0])
        rebuilt = _rebuild(name, arguments)
        return Opaque(name) if rebuilt is None else rebuilt

    def pairs(self, arguments: tuple[Any, ...]) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        if arguments and isinstance(arguments[-1], list):
            self.spend(len(arguments[-1]))
            for pair in arguments[-1]:
                if isinstance(pair, (list, tuple)) and len(pair) == 2:
                    made[_key(pair[0])] = pair[1]
        return made

    def reduce(self) -> None:
        arguments = self.pop()
        function = self.pop()
        self.stack.append(self.construct(function, arguments))

    def new_object(self, keywords: bool) -> None:
        if keywords:
            self.pop()
        self.reduce()

    def stack_global(self) -> None:
        name, module = self.pop(), self.pop()
        if not (isinstance(name, str) and isinstance(module, str)):
            raise ValueError("a global whose name is no text")
        self.stack.append(_global(module, name))

    def instance(self, named: Global) -> None:
        self.stack.append(self.construct(named, tuple(self.pop_mark())))

    def object_from_mark(self) -> None:
        items = self.pop_mark()
        self.stack.append(self.construct(items[0], tuple(items[1:])))

    def persistent(self, identifier: Any) -> None:
        value = _storage(identifier)
        if isinstance(value, Storage):
            self.storages.setdefault(value.key, value)
        self.stack.append(value)

    def memoize(self) -> None:
        self.memo[len(self.memo)] = self.top()


_HANDLERS: Mapping[str, Callable[[_Machine, Any], None]] = {
    "MARK": lambda m, _: m.stack.append(_MARK),
    "POP": lambda m, _: _drop(m),
    "POP_MARK": lambda m, _: _drop_mark(m),
    "DUP": lambda m, _: m.stack.append(m.top()),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.pop_mark())),
    "LIST": lambda m, _: m.stack.append(m.pop_mark()),
    "DICT": lambda m, _: _dict_from_mark(m),
    "FROZENSET": lambda m, _: m.stack.append(FrozenSetItems(m.pop_mark())),
    "APPEND": lambda m, _: m.append_items([m.pop()]),
    "APPENDS": lambda m, _: m.append_items(m.pop_mark()),
    "ADDITEMS": lambda m, _: m.append_items(m.pop_mark()),
    "SETITEM": lambda m, _: _set_item(m),
    "SETITEMS": lambda m, _: m.set_items(m.pop_mark()),
    "MEMOIZE": lambda m, _: m.memoize(),
    "GLOBAL": lambda m, argument: m.stack.append(_global(*str(argument).split(" ", 1))),
    "STACK_GLOBAL": lambda m, _: m.stack_global(),
    "EXT1": lambda m, argument: m.stack.append(Global(f"copyreg extension {argument}")),
    "EXT2": lambda m, argument: m.stack.append(Global(f"copyreg extension {argument}")),
    "EXT4": lambda m, argument: m.stack.append(Global(f"copyreg extension {argument}")),
    "REDUCE": lambda m, _: m.reduce(),
    "BUILD": lambda m, _: m.build(),
    "NEWOBJ": lambda m, _: m.new_object(keywords=False),
    "NEWOBJ_EX": lambda m, _: m.new_object(keywords=True),
    "INST": lambda m, argument: m.instance(_global(*str(argument).split(" ", 1))),
    "OBJ": lambda m, _: m.object_from_mark(),
    "PERSID": lambda m, argument: m.persistent(argument),
    "BINPERSID": lambda m, _: m.persistent(m.pop()),
    "NEXT_BUFFER": lambda m, _: m.stack.append(Opaque("out-of-band buffer")),
}


def _global(module: str, name: str) -> Global:
    if len(module) + len(name) > _MAX_NAME:
        raise ValueError("a global whose name is too long")
    return Global(f"{module}.{name}")


def _drop(machine: _Machine) -> None:
    machine.stack.pop()


def _drop_mark(machine: _Machine) -> None:
    machine.pop_mark()


def _dict_from_mark(machine: _Machine) -> None:
    items = machine.pop_mark()
    machine.stack.append({_key(key): value for key, value in zip(items[0::2], items[1::2], strict=True)})


def _set_item(machine: _Machine) -> None:
    value, key = machine.pop(), machine.pop()
    machine.set_items([key, value])


def _key(key: Any) -> Any:
    """A dictionary key that is safe to hash: a nested tuple of a hostile depth would overflow the C stack, and numbers
    of one hash make a dictionary slow. What isn't safe becomes a stub, hashed by what it is and equal to no other."""
    if key is None or isinstance(key, (float, str, bytes, Opaque)) or _is_short(key, _KEY_BITS):
        return key
    if isinstance(key, tuple) and len(key) <= _TUPLE_ITEMS and all(map(_is_part, key)):
        return key
    return Opaque(f"key {key:#x}" if _is_short(key, _MAX_BITS) else f"key {type(key).__name__.lower()}")


def _is_part(item: Any) -> bool:
    return item is None or isinstance(item, str) or _is_short(item, _TUPLE_BITS)


def _is_short(value: Any, bits: int) -> bool:
    return isinstance(value, int) and value.bit_length() <= bits


def _storage(identifier: Any) -> Any:
    """torch's persistent id: ("storage", class, key, location, number of elements), in legacy files followed by None or
    a view: (key of the view, first element, number of elements); or there ("module", class, its source file, text)."""
    if isinstance(identifier, tuple) and len(identifier) >= 5 and identifier[0] == "storage":
        kind, key, count = identifier[1], identifier[2], identifier[4]
        if not isinstance(key, str) or len(key) > _MAX_NAME:
            return Opaque("persistent object")
        if isinstance(kind, Global) and type(count) is int and 0 <= count < _MAX_COUNT:
            view = identifier[5] if len(identifier) > 5 else None
            if view is None:
                return Storage(kind.name, key, count)
            if isinstance(view, tuple) and len(view) == 3:
                first, seen = view[1], view[2]
                if type(first) is int and type(seen) is int and 0 <= first <= first + seen <= count:
                    return Storage(kind.name, key, count, (first, seen))
    if isinstance(identifier, tuple) and len(identifier) > 1 and identifier[0] == "module":
        return identifier[1] if isinstance(identifier[1], Global) else Opaque("persistent object")
    return Opaque("persistent object")


def _rebuild(name: str, arguments: tuple[Any, ...]) -> Any:
    """The record for one of torch's rebuild functions; None when the name is not one that is understood."""
    if name in ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v3"):
        if len(arguments) < 4 or not isinstance(arguments[0], Storage):
            return None
        third = name.endswith("_v3")
        dtype = arguments[6] if third and len(arguments) > 6 else None
        unresolved = _unresolved(arguments[6 + third] if len(arguments) > 6 + third else None)
        shape, strides = _sizes(arguments[2]), _sizes(arguments[3])
        offset = arguments[1]
        if shape is None or strides is None or type(offset) is not int or abs(offset) >= _MAX_COUNT:
            return None
        kind = dtype.name if isinstance(dtype, Global) else None
        return Tensor(arguments[0], offset, shape, strides, kind, unresolved)
    if name in ("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state"):
        return arguments[0] if arguments and isinstance(arguments[0], Tensor) else None
    if name == "torch._tensor._rebuild_from_type_v2" and len(arguments) >= 3:
        function, kind, inner = arguments[0], arguments[1], arguments[2]
        if isinstance(kind, Global) and kind.name in ("torch.Tensor", "torch.nn.parameter.Parameter"):
            return _rebuild(function.name, inner) if isinstance(function, Global) and isinstance(inner, tuple) else None
        return Opaque(kind.name) if isinstance(kind, Global) else None
    return None


def _unresolved(metadata: Any) -> str:
    """What torch would do to the elements as they are read: {"neg": True} and {"conj": True} are views that nothing was
    done to yet; what else the metadata of a tensor may say isn't known."""
    if metadata is None or metadata is False:
        return ""
    if not isinstance(metadata, dict) or len(metadata) > _MAX_METADATA:
        return f"metadata (a {type(metadata).__name__})"
    return ", ".join(
        key if key in ("neg", "conj") and value is True else f"metadata {str(key)[:40]}"
        for key, value in metadata.items()
        if value is not False
    )


def _sizes(value: Any) -> tuple[int, ...] | None:
    if (
        isinstance(value, tuple)
        and len(value) <= 16
        and all(type(item) is int and abs(item) < 1 << 48 for item in value)
    ):
        return value
    return None
