"""Which drafter architecture a set of names is, and which tensors each architecture calls its own."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Literal

Family = Literal["dflash", "dflash2", "dspark", "domino", "eagle", "unknown"]

LAYER_KEYS = (
    "input_layernorm.weight", "post_attention_layernorm.weight",
    "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight",
    "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.o_proj.weight",
    "self_attn.q_norm.weight", "self_attn.k_norm.weight",
)  # fmt: skip
TOP_KEYS = ("fc.weight", "hidden_norm.weight", "norm.weight")
BIAS_KEYS = tuple(f"self_attn.{name}_proj.bias" for name in "qkvo")
KNOWN_EXTRAS = frozenset(
    ("embed_tokens.weight", "lm_head.weight", "verifier_norm.weight", "verifier_lm_head.weight", "t2d", "d2t")
)
"""Tensors that are no part of a drafter's body and yet expected beside it."""

EMBEDDING, HEAD, DRAFT_TO_TARGET, TARGET_TO_DRAFT = "embed_tokens.weight", "lm_head.weight", "d2t", "t2d"

_CONV_KEYS = tuple(
    f"{conv}.{name}" for conv in ("attention_conv", "mlp_conv") for name in ("base_kernel", "kernel_projection.weight")
)
_SELECTOR_KEYS = tuple(
    f"candidate_selector.{name}" for name in ("hidden_projection.weight", "predecessor_codebook", "successor_codebook")
)
_LAYER = re.compile(r"^layers\.(\d{1,4})\.(.+)$")
_DFLASH2 = re.compile(r"^(candidate_selector\.|layers\.\d+\.(attention_conv|mlp_conv)\.)")
_DSPARK = re.compile(r"^(markov_head\.|markov_w[12]\b|confidence_head\.)")
_DOMINO = re.compile(r"^(logit_head\.)?(prefix_gru|embed_proj)\.")
_EAGLE = re.compile(r"^layers\.0\.(hidden_norm|input_emb_norm)\.")
_SIGNS: Mapping[Family, re.Pattern[str]] = {
    "dflash2": _DFLASH2, "dspark": _DSPARK, "domino": _DOMINO, "eagle": _EAGLE
}  # fmt: skip
_DECLARED: tuple[Family, ...] = ("dflash2", "dspark", "domino", "eagle", "dflash")


def layer_count(names: Collection[str]) -> int:
    """Number of draft layers: one more than the highest index in `layers.<i>.`."""
    return max((int(match.group(1)) + 1 for name in names if (match := _LAYER.match(name))), default=0)


def family_of(names: Collection[str]) -> Family:
    """The architecture that canonical names show, whatever a config claims; never told from how many there are."""
    for family, pattern in _SIGNS.items():
        if any(pattern.match(name) for name in names):
            return family
    has_body = any(_LAYER.match(name) for name in names)
    if has_body and "hidden_norm.weight" in names:
        return "dflash"
    if has_body and "fc.weight" in names:
        normed = any(name.endswith((".self_attn.q_norm.weight", ".self_attn.k_norm.weight")) for name in names)
        return "dflash" if normed else "eagle"
    return "unknown"


def declared_family(config: Mapping[str, Any]) -> Family | None:
    """The architecture that a config claims; None when it claims none that is known.

    DeepSpec names its plain DFlash bodies Qwen3DSparkModel too: without a Markov rank and a confidence head that is
    "dflash".
    """
    kind = str(config.get("speculators_model_type", "")).lower()
    for family in _DECLARED:
        if kind == family:
            return family
    architectures = config.get("architectures")
    text = " ".join(str(item) for item in architectures).lower() if isinstance(architectures, list) else ""
    if "dspark" in text:
        return "dspark" if config.get("markov_rank") or config.get("enable_confidence_head") else "dflash"
    return next((family for family in _DECLARED if family in text), None)


def body_keys(family: Family, layers: int, names: Collection[str]) -> list[str]:
    """Names that a drafter of this family with this many layers has, in a fixed order.

    Attention biases are its own where any is stored; DSpark and Domino heads are taken as stored, since their parts
    vary.
    """
    biased = any(name.endswith(BIAS_KEYS) and _LAYER.match(name) for name in names)
    own = LAYER_KEYS + (BIAS_KEYS if biased else ()) + (_CONV_KEYS if family == "dflash2" else ())
    keys = [f"layers.{index}.{key}" for index in range(layers) for key in own]
    keys += TOP_KEYS
    if family == "dflash2":
        keys += _SELECTOR_KEYS
    heads = {"dspark": _DSPARK, "domino": _DOMINO}.get(family)
    if heads is not None:
        keys += sorted(name for name in names if heads.match(name))
    return keys


def is_rotary_buffer(name: str) -> bool:
    """Whether a name is a rotary frequency table, which is recomputed and never read."""
    return name == "inv_freq" or name.endswith(".inv_freq")
