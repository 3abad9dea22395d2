"""Safetensors files written by hand, independent of the readers under test."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

Tensor = tuple[str, tuple[int, ...], bytes]
"""dtype, shape, bytes"""


def safetensors_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    header: dict[str, object] = {}
    data = b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def load(path: Path) -> dict[str, Tensor]:
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + length])
    start = 8 + length
    return {
        name: (
            entry["dtype"],
            tuple(entry["shape"]),
            raw[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]],
        )
        for name, entry in header.items()
        if name != "__metadata__"
    }


def drafter(layers: int = 1) -> dict[str, Tensor]:
    """A tiny DFlash body: D 4, I 6, one head of 2 for q, k and v each, two taps; every tensor different."""
    shapes: dict[str, tuple[int, ...]] = {"fc.weight": (4, 8), "hidden_norm.weight": (4,), "norm.weight": (4,)}
    for layer in range(layers):
        for key, shape in {
            "input_layernorm": (4,), "post_attention_layernorm": (4,), "mlp.gate_proj": (6, 4), "mlp.up_proj": (6, 4),
            "mlp.down_proj": (4, 6), "self_attn.q_proj": (4, 4), "self_attn.k_proj": (2, 4),
            "self_attn.v_proj": (2, 4), "self_attn.o_proj": (4, 4), "self_attn.q_norm": (2,), "self_attn.k_norm": (2,),
        }.items():  # fmt: skip
            shapes[f"layers.{layer}.{key}.weight"] = shape
    made: dict[str, Tensor] = {}
    for number, (name, shape) in enumerate(sorted(shapes.items())):
        count = 1
        for size in shape:
            count *= size
        made[name] = ("F32", shape, struct.pack(f"<{count}f", *(number + i / 128 for i in range(count))))
    return made
