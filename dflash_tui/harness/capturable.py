"""Whether hidden states can be captured from a target: a plain Qwen3 dense one, prompts that can be read as tokens.
Torch-free, so that a survey can tell before anything begins."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from dflash_tui.harness.errors import HarnessError, Refused
from dflash_tui.harness.prompts import Prompt
from dflash_tui.harness.target_files import TargetFiles

ARCHITECTURE = "Qwen3ForCausalLM"
HARMLESS = {"rope_scaling": (None,), "hidden_act": (None, "silu"), "use_sliding_window": (None, False)}
"""Config keys that change the arithmetic, and the values under which they do not."""
_NUMBERS = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps")
_COUNTS = ("num_hidden_layers", "intermediate_size")
_LAYER = (
    *(f"self_attn.{name}_proj.weight" for name in "qkvo"),
    *(f"self_attn.{name}_norm.weight" for name in "qk"),
    *(f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
)


def refusal(source: TargetFiles, prompts: Sequence[Prompt], taps: Sequence[int] = ()) -> str:
    """Why no hidden states of these prompts can be captured, as a sentence; "" when they can be."""
    try:
        check_plain(source)
        check_taps(int(source.number("num_hidden_layers")), taps)
        if any(prompt.token_ids is None for prompt in prompts):
            check_tokenizer(source.folder)
    except HarnessError as error:
        return str(error)
    return ""


def check_plain(source: TargetFiles) -> None:
    """Raises Refused, naming what is not plain Qwen3: the config's keys, then the tensors."""
    config, place = source.config, f"{source.folder}/config.json"
    named = config.get("architectures")
    if named != [ARCHITECTURE]:
        raise Refused(
            f"{place}: architectures {named!r}; hidden states can be captured from "
            f"{ARCHITECTURE} only: make them where this target runs and put them into the hidden-state folder"
        )
    for key, harmless in HARMLESS.items():
        if config.get(key) not in harmless:
            raise Refused(f"{place}: {key} is {config[key]!r}, which this harness does not compute")
    rope = config.get("rope_parameters") or {}
    if not isinstance(rope, dict):
        raise Refused(f"{place}: rope_parameters is {rope!r}; expected an object")
    if rope.get("rope_type", "default") != "default":
        raise Refused(f"{place}: rope_type {rope['rope_type']!r} is not computed by this harness")
    for key in (*_NUMBERS, *_COUNTS, *(() if "rope_theta" in rope else ("rope_theta",))):
        source.number(key)
    source.info("norm.weight")
    for layer in range(int(source.number("num_hidden_layers"))):
        for name in _LAYER:
            source.info(f"layers.{layer}.{name}")


def check_taps(layers: int, taps: Sequence[int]) -> None:
    """Raises Refused for a tap that a stack of so many layers does not have, or that is ambiguous."""
    last = layers - 1
    for tap in taps:
        if tap == last:
            raise Refused(
                f"tap {tap} is the target's last block: HF gives its state after the final norm, serving engines "
                "before it; which of them the drafter was trained on is not recorded, so it is not captured"
            )
        if not 0 <= tap < last:
            raise Refused(f"tap {tap}: the target has blocks 0 … {last}; check the drafter's target_layer_ids")


def check_tokenizer(folder: Path) -> Path:
    """The tokenizer's file, for prompts that are text alone. Raises HarnessError when text can't be tokenised."""
    path = folder / "tokenizer.json"
    if importlib.util.find_spec("tokenizers") is None:
        raise HarnessError(
            "the prompt set has no token_ids and this Python has no tokenizers package; "
            "install it (python -m pip install tokenizers) or add token_ids to the set"
        )
    if not path.exists():
        raise HarnessError(f"{path}: not there; add it, or token_ids to the prompt set")
    return path
