"""Canonical tensor names: wrapper prefixes stripped, aliases resolved, fused projections split into row ranges."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dflash_tui.checkpoints.errors import CheckpointUnsupported
from dflash_tui.checkpoints.structure import Structure, TensorInfo

_WRAPPERS = frozenset(("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"))
_PREFIXES = frozenset(("draft_model", "model"))
TARGET_PREFIXES = ("", "model.", "model.language_model.", "language_model.model.", "language_model.")
"""Where a target keeps its language model, in the order in which it is looked for."""
_ALIASES = (
    ("midlayer.", "layers.0."),
    ("encoder.fc.", "fc."),
    ("encoder.output_norm_enc.", "hidden_norm."),
)
_WHOLE_ALIASES: Mapping[str, str] = {"draft_id_to_target_id": "d2t"}
_FUSED = re.compile(r"^(layers\.\d+)\.(self_attn\.qkv_proj|mlp\.gate_up_proj)\.(weight|bias)$")


@dataclass(frozen=True)
class Part:
    """A canonical tensor: rows `row_start` … `row_stop` of a stored one; `row_stop` None means the whole of it."""

    info: TensorInfo
    row_start: int = 0
    row_stop: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the canonical tensor."""
        if self.row_stop is None:
            return self.info.shape
        return (self.row_stop - self.row_start, *self.info.shape[1:])


def canonical_name(raw: str) -> str:
    """The canonical spelling of a stored name (wrapper names go wherever they stand, model prefixes at the front)."""
    parts = [part for part in raw.split(".") if part not in _WRAPPERS]
    while len(parts) > 1 and parts[0] in _PREFIXES:
        parts.pop(0)
    name = ".".join(parts)
    for alias, canonical in _ALIASES:
        if name.startswith(alias):
            name = canonical + name[len(alias) :]
    return _WHOLE_ALIASES.get(name, name)


def canonical_tensors(structure: Structure) -> dict[str, Part]:
    """Every tensor of the model by canonical name.

    Raises CheckpointUnsupported when two different tensors get one name, or a fused one can't be split because the
    tensors that tell its rows (q_norm: head size, o_proj: query rows) are absent or don't fit.
    """
    plain: dict[str, TensorInfo] = {}
    for raw, info in structure.tensors.items():
        name = canonical_name(raw)
        other = plain.get(name)
        if other is not None and not _same_place(other, info):
            raise CheckpointUnsupported(
                f"{info.file}: {other.name} and {raw} are both {name} without their prefixes; which is the drafter's?"
            )
        plain[name] = info
    parts: dict[str, Part] = {}
    for name, info in plain.items():
        fused = _FUSED.match(name)
        for split, part in (_split(plain, info, *fused.groups()) if fused else {name: Part(info)}).items():
            if split in parts or (fused and split in plain):
                raise CheckpointUnsupported(f"{info.file}: {split} is stored twice, once fused in {info.name}")
            parts[split] = part
    return parts


def _same_place(one: TensorInfo, other: TensorInfo) -> bool:
    return (one.file, one.offset, one.shape, one.strides, one.dtype) == (
        (other.file, other.offset, other.shape, other.strides, other.dtype)
    )  # fmt: skip


def _split(plain: Mapping[str, TensorInfo], info: TensorInfo, layer: str, fused: str, kind: str) -> dict[str, Part]:
    rows = info.shape[0] if info.shape else 0
    if fused == "mlp.gate_up_proj":
        if rows % 2:
            raise CheckpointUnsupported(f"{info.file}: {info.name} has {rows} rows, which are no two equal halves")
        sizes = {"mlp.gate_proj": rows // 2, "mlp.up_proj": rows // 2}
    else:
        q_norm, o_proj = plain.get(f"{layer}.self_attn.q_norm.weight"), plain.get(f"{layer}.self_attn.o_proj.weight")
        if q_norm is None or o_proj is None or len(q_norm.shape) != 1 or len(o_proj.shape) != 2:
            raise CheckpointUnsupported(
                f"{info.file}: {info.name} can't be split into q, k, v without q_norm.weight (size of a head) and "
                f"o_proj.weight (query rows) of {layer}"
            )
        head, queries = q_norm.shape[0], o_proj.shape[1]
        if head == 0 or (rows - queries) <= 0 or (rows - queries) % (2 * head) or queries % head:
            raise CheckpointUnsupported(
                f"{info.file}: {info.name} has {rows} rows; {queries} query rows and heads of {head} leave no "
                "equal k and v"
            )
        keys = (rows - queries) // 2
        sizes = {"self_attn.q_proj": queries, "self_attn.k_proj": keys, "self_attn.v_proj": keys}
    parts: dict[str, Part] = {}
    start = 0
    for name, size in sizes.items():
        parts[f"{layer}.{name}.{kind}"] = Part(info, start, start + size)
        start += size
    return parts
