"""What a trainer saved beside the tensors, as plain data that can be written again: exactly, or with what changed said.

Small things come first: where there is too much of it all, long lists give way and settings stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dflash_tui.checkpoints.pickles import FrozenSetItems, Global, Opaque, SetItems
from dflash_tui.checkpoints.pickling import MAX_INT_BITS, TORCH_NAMES
from dflash_tui.checkpoints.plain import plain

MOST = 200_000
"""Items that are kept; of a text every 64 characters count as one. Readers show the first 20,000."""

_DEPTH = 32  # levels; readers show 12
_SIGNS = 64
_TOO_MUCH = MOST + 1
_TOLD = 100  # changes that are named
_CUT = "…"
_DTYPES = frozenset(f"torch.{name}" for name in TORCH_NAMES.values())


class Keeping:
    """Makes one value's copy. `changed` says then what is not as it was, by where it is below `name`."""

    def __init__(self, name: str) -> None:
        self.changed: dict[str, str] = {}
        self._name = name
        self._room = MOST
        self._costs: dict[int, tuple[int, int]] = {}

    def keep(self, value: Any) -> Any:
        """The value as data that `pickling.pickled` writes. An object that only keeps attributes is a dict of them."""
        attributes = value.state if isinstance(value, Opaque) else None
        return self._kept(value if attributes is None else attributes, self._name, 0)

    def _kept(self, value: Any, where: str, depth: int) -> Any:
        cost = self._cost(value, depth)
        if cost <= self._room:
            self._room -= cost
            return self._exact(value, where)
        self._room -= 1
        if not isinstance(value, dict) or depth >= _DEPTH or len(value) > self._room:
            return self._say(where, _CUT, "too large or too deep to be kept")
        made: dict[Any, Any] = dict.fromkeys(value)
        for key in sorted(value, key=lambda key: self._cost(value[key], depth + 1)):
            made[key] = self._kept(value[key], f"{where}.{_shown(key)}", depth + 1)
        return self._with_keys(made, where)

    def _exact(self, value: Any, where: str) -> Any:
        if value is None or isinstance(value, (bool, float, str, bytes)):
            return value
        if isinstance(value, int):
            return value if value.bit_length() <= MAX_INT_BITS else self._say(where, plain(value), "a number too large")
        if isinstance(value, Global) and value.name in _DTYPES:
            return value
        if isinstance(value, dict):
            made = {key: self._exact(item, f"{where}.{_shown(key)}") for key, item in value.items()}
            return self._with_keys(made, where)
        if isinstance(value, (list, tuple)):
            items = [self._exact(item, f"{where}[{number}]") for number, item in enumerate(value)]
            if isinstance(value, FrozenSetItems):
                return self._say(where, items, "a frozenset, kept as a list")
            kind = next((kind for kind in (tuple, SetItems) if isinstance(value, kind)), list)
            return kind(items)
        if isinstance(value, Opaque) and value.state is not None:
            attributes = self._exact(value.state, where)
            return self._say(where, attributes, f"an object of {value.name}, kept as its attributes")
        return self._say(where, plain(value), "an object, kept as its name")

    def _with_keys(self, value: dict[Any, Any], where: str) -> dict[Any, Any]:
        """With keys that can be written; no two become one."""
        if not any(isinstance(key, Opaque) for key in value):
            return value
        made: dict[Any, Any] = {key: item for key, item in value.items() if not isinstance(key, Opaque)}
        for number, (key, item) in enumerate(value.items()):
            if isinstance(key, Opaque):
                name = str(key) if str(key) not in made else f"{key} {number}"
                made[name] = self._say(f"{where}.{_shown(key)}", item, "a key that can't be kept, kept as its name")
        return made

    def _say(self, where: str, value: Any, what: str) -> Any:
        if len(self.changed) < _TOLD:
            self.changed.setdefault(where[: _SIGNS * 4], what)
        return value

    def _cost(self, value: Any, depth: int) -> int:
        """Items that writing it takes, what several places share for each of them; _TOO_MUCH for what has no end, or
        is too deep at that depth."""
        return self._measured(value, depth)[0]

    def _measured(self, value: Any, depth: int) -> tuple[int, int]:
        """Its cost, and how many levels are below it."""
        if isinstance(value, Opaque):
            value = value.state
        if isinstance(value, (str, bytes)):
            return 1 + len(value) // _SIGNS, 0
        if not isinstance(value, (dict, list, tuple)):
            return 1, 0
        known = self._costs.get(id(value))
        if known is not None:
            cost, levels = known
            return (cost if depth + levels <= _DEPTH else _TOO_MUCH), levels
        if depth > _DEPTH:
            return _TOO_MUCH, 0
        self._costs[id(value)] = (_TOO_MUCH, 0)  # of what holds itself
        total, levels = 1, 0
        for part in _parts(value):
            cost, below = self._measured(part, depth + 1)
            total += cost
            if isinstance(part, (dict, list, tuple, Opaque)):
                levels = max(levels, below + 1)
            if total > MOST:
                break
        self._costs[id(value)] = (min(total, _TOO_MUCH), levels)
        return self._costs[id(value)]


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key if isinstance(key, (str, bytes)) else None
            yield item
    else:
        yield from value


def _shown(key: Any) -> str:
    return key[:_SIGNS] if isinstance(key, str) else repr(key)[:_SIGNS]
