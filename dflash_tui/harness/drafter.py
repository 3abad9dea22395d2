"""The DFlash v1 drafter: one definition that evaluation and training share.

A block is an anchor token followed by mask tokens. Its slots attend to the fused target features of the positions
before the anchor and to the block itself; nothing at or after the anchor is visible from outside the block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dflash_tui.harness.errors import Refused
from dflash_tui.harness.transformer import Attention, KeysValues, Linear, RMSNorm, Shape, SwiGLU
from dflash_tui.records.settings import DrafterSettings, LayerMask


class Layer(nn.Module):
    """A decoder layer. The context enters keys and values without `input_layernorm`."""

    def __init__(self, s: DrafterSettings) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(s.hidden_size, s.rms_norm_eps)
        self.self_attn = Attention(
            Shape(
                s.hidden_size,
                s.num_attention_heads,
                s.num_key_value_heads,
                s.head_dim,
                s.rope_theta,
                s.rms_norm_eps,
                s.attention_bias,
            )
        )
        self.post_attention_layernorm = RMSNorm(s.hidden_size, s.rms_norm_eps)
        self.mlp = SwiGLU(s.hidden_size, s.intermediate_size)

    def forward(self, x: Tensor, positions: Tensor, context: KeysValues, mask: Tensor) -> Tensor:
        """Slots [N, D] at positions [N] over C context keys, then themselves; mask [N, C + N] -> [N, D]."""
        slots = self.input_layernorm(x)
        keys, values = (
            torch.cat(pair, dim=1) for pair in zip(context, self.self_attn.keys_values(slots, positions), strict=True)
        )
        x = x + self.self_attn(slots, positions, keys, values, mask)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


def visible(kind: LayerMask, anchors: Tensor, block: int, context: int, window: int) -> Tensor:
    """The boolean mask [G·B, C + G·B] of one layer: True where a slot (row) may look.

    Rows and the last G·B columns are slots, block by block; the first C columns are context positions 0 … C−1. A slot
    at position q sees context k < its own anchor, and slots of its own block: all ("full"), k ≤ q ("sliding-causal"),
    and when sliding only |q − k| < window (the window counts the query itself).
    """
    device = anchors.device
    queries = (anchors[:, None] + torch.arange(block, device=device)).flatten()
    owner = torch.arange(anchors.shape[0], device=device).repeat_interleave(block)
    before = torch.arange(context, device=device)
    outside = before[None, :] < anchors.repeat_interleave(block)[:, None]
    inside = owner[:, None] == owner[None, :]
    if kind != "full":
        outside &= queries[:, None] - before[None, :] < window
        inside &= (queries[:, None] - queries[None, :]).abs() < window
    if kind == "sliding-causal":
        inside &= queries[None, :] <= queries[:, None]
    return torch.cat((outside, inside), dim=1)


class Drafter(nn.Module):
    """A DFlash v1 drafter without embedding and head (those are the target's).

    Parameter names are the canonical ones of a checkpoint. Arithmetic is float32 whatever the stored dtype. Raises
    Refused for another family, or for masks that the settings do not pin down.
    """

    def __init__(self, settings: DrafterSettings) -> None:
        super().__init__()
        s = settings
        if s.family != "dflash":
            raise Refused(f"drafter: family {s.family!r}, but this harness evaluates dflash v1 only")
        if len(s.layer_masks) != s.num_hidden_layers:
            raise Refused(f"drafter: {len(s.layer_masks)} layer masks for {s.num_hidden_layers} layers")
        if any(kind != "full" for kind in s.layer_masks) and not s.sliding_window:
            raise Refused("drafter: sliding layers without a window; set sliding_window")
        self.settings = s
        self.fc = Linear(len(s.taps) * s.hidden_size, s.hidden_size, bias=False)
        self.hidden_norm = RMSNorm(s.hidden_size, s.rms_norm_eps)
        self.layers = nn.ModuleList(Layer(s) for _ in range(s.num_hidden_layers))
        self.norm = RMSNorm(s.hidden_size, s.rms_norm_eps)

    def context(self, features: Tensor) -> Tensor:
        """Tapped target states [T, K·D], concatenated in tap order -> context vectors [T, D]."""
        out: Tensor = self.hidden_norm(self.fc(features.float()))
        return out

    def context_kv(self, context: Tensor) -> tuple[KeysValues, ...]:
        """Keys and values of context vectors [T, D] (positions 0 … T−1) for every layer, to be shared by all blocks."""
        positions = torch.arange(context.shape[0], device=context.device)
        return tuple(layer.self_attn.keys_values(context, positions) for layer in self._stack())

    def forward(self, blocks: Tensor, anchors: Tensor, context: Tensor | Sequence[KeysValues]) -> Tensor:
        """Block embeddings [G, B, D] at absolute anchor positions [G] (int64) -> final-normed hidden states [G, B, D].

        `context` is what `context` or `context_kv` returned; it must reach position max(anchors) − 1, and what lies at
        an anchor or after it is never seen by that anchor's block.
        """
        count, block, hidden = blocks.shape
        shared = self.context_kv(context) if isinstance(context, Tensor) else context
        reach = int(anchors.max())
        if shared[0][0].shape[1] < reach:
            raise ValueError(f"context holds {shared[0][0].shape[1]} positions, the last anchor needs {reach}")
        window = self.settings.sliding_window or 0
        masks = {k: visible(k, anchors, block, reach, window) for k in sorted(set(self.settings.layer_masks))}
        positions = (anchors[:, None] + torch.arange(block, device=anchors.device)).flatten()
        x = blocks.float().reshape(count * block, hidden) * self.settings.input_embedding_scale
        for layer, kind, (keys, values) in zip(self._stack(), self.settings.layer_masks, shared, strict=True):
            x = layer(x, positions, (keys[:, :reach], values[:, :reach]), masks[kind])
        out: Tensor = self.norm(x).view(count, block, hidden)
        return out

    def _stack(self) -> list[Layer]:
        return cast("list[Layer]", list(self.layers))

    def logits(self, hidden: Tensor, head: Tensor) -> Tensor:
        """Hidden states […, D] and rows of the head [V', D] -> logits […, V'] with multiplier and soft cap applied."""
        out = F.linear(hidden, head.to(hidden.dtype))
        if self.settings.output_multiplier != 1.0:
            out = out * self.settings.output_multiplier
        cap = self.settings.final_logit_softcapping
        return out if cap is None else torch.tanh(out / cap) * cap
