"""A checkpoint's names and shapes against what its family needs, from the header alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from dflash_tui.checkpoints.family import (
    DRAFT_TO_TARGET,
    EMBEDDING,
    HEAD,
    KNOWN_EXTRAS,
    TARGET_TO_DRAFT,
    TOP_KEYS,
    body_keys,
    family_of,
    is_rotary_buffer,
    layer_count,
)
from dflash_tui.checkpoints.keys import Part, canonical_tensors
from dflash_tui.checkpoints.structure import Structure
from dflash_tui.records.checkpoint import Audit

_USED_EXTRAS = frozenset((EMBEDDING, HEAD, DRAFT_TO_TARGET, TARGET_TO_DRAFT))


def audit(structure: Structure, config: Mapping[str, Any] | None = None) -> Audit:
    """Names used, unused and missing, shapes that disagree, and what the shapes tell.

    `config` is the drafter's own (nested speculators form or flat), used for the number of layers, the target's width
    and a reduced vocabulary. An embedding or head that is stored is "unknown" until its bytes are compared.
    Raises CheckpointUnsupported when names collide or a fused tensor can't be split.
    """
    described = _described(config or {})
    parts = canonical_tensors(structure)
    family = family_of(parts)
    layers = _whole(described.get("num_hidden_layers")) or layer_count(parts)
    needed = body_keys(family, layers, parts) if family not in ("unknown", "eagle") else []
    inferred = infer(parts, _whole(described.get("target_hidden_size")))
    missing = [name for name in needed if name not in parts]
    vocabulary, drafts = _whole(described.get("vocab_size")), _whole(described.get("draft_vocab_size"))
    declared = vocabulary is not None and drafts is not None and drafts < vocabulary
    if declared or TARGET_TO_DRAFT in parts or DRAFT_TO_TARGET in parts:
        missing += [name for name in (HEAD, DRAFT_TO_TARGET) if name not in parts]
    own = set(needed)
    return Audit(
        family=family,
        container=structure.container,
        tensors=len(structure.tensors),
        drafter=tuple(name for name in needed if name in parts),
        unused=tuple(sorted(n for n in parts if n not in own and n not in _USED_EXTRAS and not is_rotary_buffer(n))),
        missing=tuple(missing),
        mismatched=tuple(_mismatched(parts, inferred, needed)),
        embedding=_state(parts, EMBEDDING),
        head=_state(parts, HEAD),
        dtype=_dtype(parts, needed),
        inferred=inferred,
    )


def infer(parts: Mapping[str, Part], target_hidden_size: int | None = None) -> dict[str, int]:
    """What shapes tell: widths, layers, taps, heads and vocabulary. A value that no tensor tells is left out."""
    found: dict[str, int] = {}
    hidden = _hidden_size(parts)
    _put(found, "hidden_size", hidden)
    _put(found, "num_hidden_layers", layer_count(parts))
    width, columns = target_hidden_size or hidden, _size(parts, "fc.weight", 1)
    if width and columns and columns % width == 0:
        found["num_taps"] = columns // width
    _put(found, "intermediate_size", _usual(_layer_sizes(parts, "mlp.gate_proj.weight")))
    norms = [*_layer_sizes(parts, "self_attn.q_norm.weight"), *_layer_sizes(parts, "self_attn.k_norm.weight")]
    head = _usual(norms)
    _put(found, "head_dim", head)
    for field, projection in (("num_attention_heads", "q"), ("num_key_value_heads", "k")):
        rows = _usual(_layer_sizes(parts, f"self_attn.{projection}_proj.weight"))
        if head and rows and rows % head == 0:
            found[field] = rows // head
    drafts = _size(parts, DRAFT_TO_TARGET, 0)
    reduced = drafts is not None or TARGET_TO_DRAFT in parts
    head_rows = _size(parts, HEAD, 0)
    for name in (EMBEDDING, TARGET_TO_DRAFT, "verifier_lm_head.weight"):
        if "vocab_size" not in found:
            _put(found, "vocab_size", _size(parts, name, 0))
    if reduced:
        _put(found, "draft_vocab_size", drafts or head_rows)
    elif "vocab_size" not in found:
        _put(found, "vocab_size", head_rows)
    return found


def extras(audited: Audit, structure: Structure) -> tuple[str, ...]:
    """Stored tensors that are no part of the drafter's body but known beside it (embedding, head, vocabulary maps)."""
    return tuple(sorted(set(canonical_tensors(structure)) & KNOWN_EXTRAS - set(audited.drafter)))


def _described(config: Mapping[str, Any]) -> dict[str, Any]:
    inner = config.get("transformer_layer_config")
    return {**inner, **config} if isinstance(inner, Mapping) else dict(config)


def _mismatched(parts: Mapping[str, Part], inferred: Mapping[str, int], needed: list[str]) -> list[str]:
    get = inferred.get
    hidden, inner, head = get("hidden_size"), get("intermediate_size"), get("head_dim")
    queries = None if head is None or "num_attention_heads" not in inferred else head * inferred["num_attention_heads"]
    keys = None if head is None or "num_key_value_heads" not in inferred else head * inferred["num_key_value_heads"]
    expected: dict[str, tuple[int | None, ...]] = {
        "input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden), "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner), "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden), "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries), "self_attn.q_norm.weight": (head,),
        "self_attn.k_norm.weight": (head,), "self_attn.q_proj.bias": (queries,), "self_attn.k_proj.bias": (keys,),
        "self_attn.v_proj.bias": (keys,), "self_attn.o_proj.bias": (hidden,),
        "fc.weight": (hidden, None), "hidden_norm.weight": (hidden,), "norm.weight": (hidden,),
        EMBEDDING: (get("vocab_size"), hidden), HEAD: (get("draft_vocab_size", get("vocab_size")), hidden),
        DRAFT_TO_TARGET: (get("draft_vocab_size"),), TARGET_TO_DRAFT: (get("vocab_size"),),
    }  # fmt: skip
    sentences: list[str] = []
    for name in [*needed, EMBEDDING, HEAD, DRAFT_TO_TARGET, TARGET_TO_DRAFT]:
        suffix = name.split(".", 2)[2] if name.startswith("layers.") else name
        shape = expected.get(suffix)
        if name not in parts or shape is None:
            continue
        found = parts[name].shape
        if len(found) != len(shape) or any(want not in (None, have) for have, want in zip(found, shape, strict=True)):
            wanted = ", ".join("?" if want is None else str(want) for want in shape)
            sentences.append(f"{name}: found ({', '.join(map(str, found))}), expected ({wanted})")
    if "fc.weight" in parts and "num_taps" not in inferred and hidden:
        shape = parts["fc.weight"].shape
        sentences.append(f"fc.weight: found {shape}, expected ({hidden}, a whole number of taps of {hidden} columns)")
    return sentences


def _hidden_size(parts: Mapping[str, Part]) -> int | None:
    sizes = [size for name in TOP_KEYS if (size := _size(parts, name, 0))]
    for name in ("input_layernorm.weight", "post_attention_layernorm.weight"):
        sizes += _layer_sizes(parts, name)
    return _usual(sizes)


def _usual(sizes: list[int]) -> int | None:
    """The size that most tensors agree on, so that one wrong shape does not blame the others."""
    return max(sizes, key=sizes.count, default=None)


def _state(parts: Mapping[str, Part], name: str) -> Literal["target", "unknown"]:
    return "unknown" if name in parts else "target"


def _dtype(parts: Mapping[str, Part], needed: list[str]) -> str:
    """The dtypes of the drafter's own tensors, most frequent first, joined by "+"."""
    counts: dict[str, int] = {}
    for name in needed or list(parts):
        if name in parts:
            dtype = parts[name].info.dtype
            counts[dtype] = counts.get(dtype, 0) + 1
    return "+".join(sorted(counts, key=lambda dtype: (-counts[dtype], dtype)))


def _size(parts: Mapping[str, Part], name: str, axis: int) -> int | None:
    part = parts.get(name)
    return part.shape[axis] if part is not None and len(part.shape) > axis else None


def _layer_sizes(parts: Mapping[str, Part], suffix: str) -> list[int]:
    """First dimensions of a tensor in all the layers that have it."""
    sizes = (_size(parts, f"layers.{index}.{suffix}", 0) for index in range(layer_count(parts)))
    return [size for size in sizes if size]


def _put(found: dict[str, int], field: str, value: int | None) -> None:
    if value:
        found[field] = value


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None
