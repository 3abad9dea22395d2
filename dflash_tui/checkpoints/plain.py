"""What a pickle described, as data that can be shown and written as JSON."""

from __future__ import annotations

from itertools import islice
from typing import Any

from dflash_tui.checkpoints.pickles import Global, Opaque

_MAX_BITS = 1024  # of a whole number that is shown: Python refuses to write out those of more than 4300 digits
_MAX_TEXT = 4096


def plain(value: Any, limit: int = 20_000) -> Any:
    """JSON-like data of a value: names for globals and stubs, attribute dicts for objects that only keep attributes.

    At most `limit` items and 12 levels are kept, of a dict those with few parts first, for they are its settings;
    deeper or later ones, and whole numbers beyond a float's range, become "…"; of a text its first 4096 characters are
    kept.
    """
    budget = [limit]
    return _plain(value, budget, 12)


def _plain(value: Any, budget: list[int], depth: int) -> Any:
    budget[0] -= 1
    if budget[0] < 0 or depth < 0:
        return "…"
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        return "…"
    if isinstance(value, str):
        return value if len(value) <= _MAX_TEXT else f"{value[:_MAX_TEXT]}…"
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Global):
        return _plain(value.name, budget, depth)
    if isinstance(value, Opaque):
        if value.state is None:
            return repr(value)
        budget[0] += 1  # it and its attributes are one item
        return _plain(value.state, budget, depth)
    if isinstance(value, dict):
        items = {str(key)[:_MAX_TEXT]: item for key, item in _first(value.items(), budget)}
        order = sorted(items, key=lambda name: _parts(items[name]))
        found = {name: _plain(items[name], budget, depth - 1) for name in order}
        return {name: found[name] for name in items}
    if isinstance(value, (list, tuple)):
        return [_plain(item, budget, depth - 1) for item in _first(value, budget)]
    return f"<{type(value).__name__.lower()}>"


def _parts(value: Any) -> int:
    if isinstance(value, Opaque):
        value = value.state
    return len(value) if isinstance(value, (dict, list, tuple)) else 0


def _first(items: Any, budget: list[int]) -> list[Any]:
    return list(islice(items, max(budget[0], 0)))
