"""Which dictionary of a torch file is the model's state dict: told from the names in it, then from its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dflash_tui.checkpoints.errors import CheckpointUnsupported
from dflash_tui.checkpoints.family import KNOWN_EXTRAS, family_of
from dflash_tui.checkpoints.keys import canonical_name
from dflash_tui.checkpoints.pickles import Opaque, Tensor
from dflash_tui.checkpoints.sentences import is_text, shown
from dflash_tui.checkpoints.statedict import ARGS, NAMESPACES, NOT_MODEL, STEPS

_TRAINING = re.compile(
    r"(^|[_.-])(optim\w*|adam\w*|ema|swa|shadow|grad\w*|(lr_?)?sched\w*|scaler|rng|amp)([_.-]|$)", re.I
)
_STATE_HEAD = re.compile(
    r"(optim(izer)?s?(_\d+)?|(lr_)?schedulers?|rng|grads?|gradients|(grad_)?scaler"
    r"|ema(_(model|weights|params|parameters|shadow|draft_model|drafter|module))?)(_states?)?(_dict)?"
)  # the first part of a dotted name that is a trainer's state, where "grad_proj.weight" is a parameter
_PARAMETERS = KNOWN_EXTRAS | {"weight", "bias"}
_NAMES, _LIKELY, _DRAFTER = range(3)  # evidence: it has tensors; names of parameters; a drafter's own names


@dataclass(frozen=True, eq=False)
class _Space:
    """A dictionary that may be the model's, the keys that lead to it, and what speaks for it."""

    path: tuple[str, ...]
    entries: Mapping[Any, Any]
    evidence: int
    has_tensors: bool

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def is_known(self) -> bool:
        return bool(self.path) and self.path[-1] in NAMESPACES


def model_tensors(root: Any, file: str) -> tuple[str, dict[str, Tensor]]:
    """(the keys, joined by a dot, that lead to the model's tensors, "" when they are the object itself; the tensors by
    name; none: empty).

    A dictionary with a drafter's own names is the model, at the top or one level below; where none has them, the one
    under a usual key, the object itself where its tensors are named as parameters are, or the only one with tensors.
    Raises CheckpointUnsupported naming those of which none is told to be the model's, or what is no plain tensor.
    """
    if isinstance(root, Tensor):
        raise CheckpointUnsupported(f"{file}: holds a single tensor, expected a dict of named tensors")
    if isinstance(root, Opaque):
        raise CheckpointUnsupported(f"{file}: is a pickled {root.name} object; save its state_dict() instead")
    if not isinstance(root, dict):
        raise CheckpointUnsupported(f"{file}: holds a {type(root).__name__}, expected a dict of named tensors")
    space = _chosen(list(_spaces(root)), file)
    if space is not None:
        return space.name, _named(space, file)
    for name in NAMESPACES:
        if isinstance(root.get(name), Opaque):
            raise CheckpointUnsupported(f"{file}: {name} is a pickled {root[name].name}; save its state_dict() instead")
    return "", {}


def model_entries(root: Mapping[Any, Any], namespace: str) -> tuple[Any, Mapping[Any, Any]]:
    """(the top-level key, None where there is none; the dictionary) that `model_tensors` named."""
    if not namespace:
        return None, root
    if isinstance(root.get(namespace), dict):
        return namespace, root[namespace]
    for key, value in root.items():
        if isinstance(value, dict) and isinstance(key, str) and namespace.startswith(f"{key}."):
            inner = value.get(namespace[len(key) + 1 :])
            if isinstance(inner, dict):
                return key, inner
    return None, {}


def _spaces(root: Mapping[Any, Any]) -> Iterator[_Space]:
    """The object itself and its dictionaries, two levels deep, each once, usual keys first."""
    own = {key: value for key, value in root.items() if _is_parameter(key, value) and not _is_state(str(key))}
    seen: set[int] = set()
    yield from _space((), own)
    for key, value in _below(root, seen):
        yield from _space((key,), value)
        for inner, entries in _below(value, seen):
            yield from _space((key, inner), entries)


def _below(entries: Mapping[Any, Any], seen: set[int]) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    usual = [name for name in NAMESPACES if name in entries]
    for key in (*usual, *(key for key in entries if key not in usual)):
        value = entries[key]
        if not isinstance(value, dict) or not isinstance(key, str) or id(value) in seen:
            continue
        if key in usual or not (_is_of_training(key) or "param_groups" in value):
            seen.add(id(value))
            yield key, value


def _is_of_training(key: str) -> bool:
    return key in ARGS or bool(NOT_MODEL.match(key) or _TRAINING.search(key))


def _space(path: tuple[str, ...], entries: Mapping[Any, Any]) -> Iterator[_Space]:
    names = [str(key) for key, value in entries.items() if isinstance(value, (Tensor, Opaque))]
    if not names or (not path and all(name in STEPS for name in names)):
        return
    evidence = _NAMES
    if family_of({canonical_name(name) for name in names}) != "unknown":
        evidence = _DRAFTER
    elif any("." in name or name in _PARAMETERS for name in names):
        evidence = _LIKELY
    yield _Space(path, entries, evidence, any(isinstance(value, Tensor) for value in entries.values()))


def _chosen(spaces: list[_Space], file: str) -> _Space | None:
    drafters = [space for space in spaces if space.evidence == _DRAFTER]
    placed = [space for space in spaces if space.is_known or not space.path]
    return (
        _best([space for space in drafters if space.has_tensors], file)
        or _best(drafters, file)
        or _best([space for space in spaces if space.has_tensors or (space in placed and space.evidence)], file)
        or _best(placed, file)
    )


def _best(spaces: list[_Space], file: str) -> _Space | None:
    """The model's of spaces for which equally much speaks. Raises CheckpointUnsupported when several may be it."""
    known = [space for space in spaces if space.is_known and len(space.path) == 1]
    usual = next((space for space in known if space.has_tensors), known[0] if known else None)
    if usual is not None:
        inner = [space for space in spaces if space.path[:-1] == usual.path and space.evidence > usual.evidence]
        return _only(inner, file) or usual
    likely = [space for space in spaces if space.evidence >= _LIKELY]
    return (
        _only([space for space in spaces if space.is_known], file)
        or next((space for space in likely if not space.path), None)
        or _only([space for space in likely if space.has_tensors] or likely, file)
        or _only([space for space in spaces if len(space.path) < 2], file)
    )


def _only(spaces: list[_Space], file: str) -> _Space | None:
    if len(spaces) > 1:
        raise CheckpointUnsupported(
            f"{file}: {_listed(spaces)} hold tensors; which are the model's is not told, save the drafter's under "
            f"{NAMESPACES[0]}"
        )
    return spaces[0] if spaces else None


def _listed(spaces: Iterable[_Space]) -> str:
    names = [space.name or "its top level" for space in spaces]
    return ", ".join(names[:8] + ["…"] * (len(names) > 8))


def _is_parameter(key: Any, value: Any) -> bool:
    """Whether a top-level entry may be a parameter, if of a kind that is not understood, rather than a trainer's
    object."""
    return isinstance(value, Tensor) or (isinstance(value, Opaque) and "." in str(key))


def _is_state(name: str) -> bool:
    """Whether a top-level tensor is a trainer's state."""
    head, dot, _ = name.partition(".")
    return bool(_STATE_HEAD.fullmatch(head) if dot else NOT_MODEL.match(name))


def _named(space: _Space, file: str) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    keys: dict[str, Any] = {}
    for key, value in space.entries.items():
        name = str(key)
        if not isinstance(value, (Tensor, Opaque)) or name.rpartition(".")[2] == "_extra_state":
            continue
        place = f"{space.name}.{name}" if space.name else name
        if isinstance(value, Opaque):
            raise CheckpointUnsupported(
                f"{file}: {place} is a {value.name}, not a plain tensor; save a full (gathered, dequantised) state dict"
            )
        if name in keys:
            raise CheckpointUnsupported(
                f"{file}: {place} is two tensors, under the keys {shown(keys[name])} and {shown(key)}; which is the "
                "drafter's?"
            )
        if not isinstance(key, (str, int)) or not is_text(name):
            raise CheckpointUnsupported(f"{file}: {place} is a tensor whose name is no text; rename it and save again")
        found[name], keys[name] = value, key
    return found
