"""What a drafter is, apart from its weights: shapes, taps, block, masks. Filled from configs, never guessed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Literal, Optional, Tuple

LayerMask = Literal["full", "sliding-causal", "sliding-symmetric"]


@dataclass(frozen=True)
class DrafterSettings:
    """Everything that the forward pass of a drafter needs and that is not a tensor.

    `taps` are z-lab ids: 0-based target blocks whose *output* is tapped (HF ``hidden_states[id + 1]``), in
    concatenation order. `block_size` is the trained block (anchor included). `layer_masks` has one entry a layer;
    `sliding_window` counts the query itself (key visible iff q − k < W). `sources` says for each field where it was
    read: "config.json: block_size", "weights: fc.weight", "config.toml: drafter.rope_theta".
    """

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    taps: Tuple[int, ...]
    block_size: int
    mask_token_id: int
    rope_theta: float
    rms_norm_eps: float
    layer_masks: Tuple[LayerMask, ...]
    family: str = "dflash"
    sliding_window: Optional[int] = None
    draft_vocab_size: Optional[int] = None
    sample_from_anchor: bool = False
    attention_bias: bool = False
    input_embedding_scale: float = 1.0
    output_multiplier: float = 1.0
    final_logit_softcapping: Optional[float] = None
    sources: Dict[str, str] = field(default_factory=dict)
