"""Records to and from JSON. Unknown keys are ignored (a newer writer may add some); what is missing or of the wrong
type is one error that names the place."""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from typing import Any, Dict, NoReturn, Tuple, Type, TypeVar, Union, cast

T = TypeVar("T")


class RecordError(ValueError):
    """A JSON text that is not the record it should be; the sentence names file, key, found and expected."""


def to_data(record: Any) -> Any:
    """Plain JSON data of a dataclass instance (tuples become lists)."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {f.name: to_data(getattr(record, f.name)) for f in dataclasses.fields(record)}
    if isinstance(record, (list, tuple)):
        return [to_data(item) for item in record]
    if isinstance(record, dict):
        return {str(key): to_data(value) for key, value in record.items()}
    return record


def dumps(record: Any, indent: Union[int, None] = None) -> str:
    """Strict JSON text (no NaN) of a record or of plain data that contains records. It can always be written as UTF-8:
    half a surrogate pair (a file name that is no UTF-8) is escaped as JSON escapes it, and comes back the same."""
    text = json.dumps(to_data(record), indent=indent, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def loads(kind: Type[T], text: Union[str, bytes], where: str) -> T:
    """The record in a JSON text. Raises RecordError naming `where` (a file, or file:line)."""
    try:
        data = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{where}: not JSON ({error})") from error
    return from_data(kind, data, where)


def from_data(kind: Type[T], data: Any, where: str) -> T:
    """A dataclass instance from plain JSON data. Raises RecordError."""
    return cast(T, _decode(kind, data, where))


def _decode(kind: Any, data: Any, where: str) -> Any:
    if kind is Any:
        return data
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Union or origin is types.UnionType:
        if data is None and type(None) in arguments:
            return None
        return _decode(next(a for a in arguments if a is not type(None)), data, where)
    if origin is typing.Literal:
        if data not in arguments:
            raise RecordError(f"{where}: found {data!r}, expected one of {', '.join(map(repr, arguments))}")
        return data
    if origin is tuple:
        if not isinstance(data, list):
            raise RecordError(f"{where}: found {_name(data)}, expected a list")
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_decode(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(data))
        if len(data) != len(arguments):
            raise RecordError(f"{where}: found {len(data)} items, expected {len(arguments)}")
        return tuple(_decode(a, item, f"{where}[{i}]") for i, (a, item) in enumerate(zip(arguments, data, strict=True)))
    if origin is dict:
        if not isinstance(data, dict):
            raise RecordError(f"{where}: found {_name(data)}, expected an object")
        return {key: _decode(arguments[1], value, f"{where}.{key}") for key, value in data.items()}
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, data, where)
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        try:
            return float(data)
        except OverflowError:
            raise RecordError(f"{where}: found a whole number of {data.bit_length()} bits, expected float") from None
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise RecordError(f"{where}: found {_name(data)}, expected {kind.__name__}")
    return data


def _decode_dataclass(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise RecordError(f"{where}: found {_name(data)}, expected an object ({kind.__name__})")
    hints = _hints(kind)
    values: Dict[str, Any] = {}
    missing: Tuple[str, ...] = ()
    for item in dataclasses.fields(kind):
        if item.name in data:
            values[item.name] = _decode(hints[item.name], data[item.name], f"{where}.{item.name}")
        elif item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
            missing += (item.name,)
    if missing:
        raise RecordError(f"{where}: {kind.__name__} lacks {', '.join(missing)}")
    return kind(**values)


@functools.cache
def _hints(kind: Any) -> Dict[str, Any]:
    return typing.get_type_hints(kind)  # evaluates source text, at four times the cost of the decoding itself


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _name(data: Any) -> str:
    return "null" if data is None else f"{type(data).__name__} {str(data)[:40]!r}"
