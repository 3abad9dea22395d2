"""Which attention mask each draft layer uses, from what its config declares (never from its weights)."""

from __future__ import annotations

from typing import Any, Protocol

from dflash_tui.checkpoints.errors import CheckpointUnsupported, SettingsConflict
from dflash_tui.checkpoints.sentences import shown
from dflash_tui.checkpoints.spelling import Said
from dflash_tui.records.settings import LayerMask

_FULL, _SLIDING = "full_attention", "sliding_attention"


class Picks(Protocol):
    """Finds a field's value in the order of precedence; `missing` collects fields that nothing gives."""

    sources: dict[str, str]
    missing: list[str]

    def find(self, field: str) -> Said | None:
        """The first source's value, or None."""
        ...


def resolve_masks(pick: Picks, layers: int) -> tuple[tuple[LayerMask, ...], int | None]:
    """(one mask a layer, window in tokens or None).

    Full layers see the whole block. Sliding layers are causal inside the block unless `is_causal` is false or
    `sliding_window_non_causal` is true. A window without layer types is missing information, not "all full".
    """
    types, window = pick.find("layer_types"), pick.find("sliding_window")
    if types is None:
        switch = pick.find("use_sliding_window")
        if window is not None and (switch is None or switch.value is not False):
            pick.missing.append("layer_types")
            return (), None
        pick.sources["layer_masks"] = "no config names a sliding window"
        pick.sources.pop("sliding_window", None)
        return _all_full(layers), None
    pick.sources["layer_masks"] = types.source
    value: Any = types.value
    if not isinstance(value, (list, tuple)) or any(item not in (_FULL, _SLIDING) for item in value):
        raise CheckpointUnsupported(
            f"{types.source} is {shown(value)}: only {_FULL} and {_SLIDING} layers can be evaluated"
        )
    if len(value) != layers:
        raise SettingsConflict(f"{types.source} names {len(value)} layers, but the weights have {layers}")
    if _SLIDING not in value:
        _refuse_causal_full(pick.find("is_causal"))
        pick.sources.pop("sliding_window", None)
        return _all_full(layers), None
    return _sliding(pick, list(value), window), _window(pick, window, types)


def _all_full(layers: int) -> tuple[LayerMask, ...]:
    return tuple("full" for _ in range(layers))


def _sliding(pick: Picks, types: list[str], window: Said | None) -> tuple[LayerMask, ...]:
    causal, symmetric = pick.find("is_causal"), pick.find("sliding_window_non_causal")
    if causal is not None and symmetric is not None and bool(causal.value) == bool(symmetric.value):
        raise SettingsConflict(
            f"{causal.source} is {shown(causal.value)}, but {symmetric.source} is {shown(symmetric.value)}"
        )
    if _FULL in types:
        _refuse_causal_full(causal)
    free = (causal is not None and causal.value is False) or (symmetric is not None and symmetric.value is True)
    for said in (causal, symmetric):
        if said is not None:
            pick.sources["layer_masks"] += f"; {said.source}"
    sliding: LayerMask = "sliding-symmetric" if free else "sliding-causal"
    return tuple(sliding if item == _SLIDING else "full" for item in types)


def _window(pick: Picks, window: Said | None, types: Said) -> int | None:
    if window is None:
        pick.missing.append("sliding_window")
        return None
    switch = pick.find("use_sliding_window")
    if switch is not None and switch.value is False:
        raise SettingsConflict(
            f"{types.source} has sliding layers and {window.source} is {shown(window.value)}, but {switch.source} is "
            "False; correct the config that is wrong"
        )
    if type(window.value) is not int or window.value < 1:
        raise SettingsConflict(f"{window.source} is {shown(window.value)}, expected a number of tokens")
    return window.value


def _refuse_causal_full(causal: Said | None) -> None:
    if causal is not None and causal.value is True:
        raise CheckpointUnsupported(f"{causal.source} is True: causal full-attention layers can't be evaluated yet")
