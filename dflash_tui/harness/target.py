"""A plain Qwen3 dense target: greedy decoding with the hidden states of chosen layers kept.

Weights keep their stored dtype; arithmetic is float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dflash_tui.harness.capturable import check_plain, check_taps
from dflash_tui.harness.errors import PromptRefused
from dflash_tui.harness.mapped import Maps, fill
from dflash_tui.harness.target_files import TargetFiles
from dflash_tui.harness.transformer import Attention, KeysValues, RMSNorm, Shape, SwiGLU
from dflash_tui.harness.vocabulary import Vocabulary, target_vocabulary

HEAD_ROWS = 8192
"""Rows of the head that are float32 at a time: a whole one is gigabytes."""


@dataclass(frozen=True)
class Completion:
    """A greedy completion: `tokens` are prompt and completion; `hidden` [N − 1, K·D] (float32) are the tapped states
    of every token that was fed, taps side by side in the order asked. `ended` says whether it reached an EOS token."""

    tokens: tuple[int, ...]
    prompt_len: int
    hidden: Tensor
    ended: bool


class TargetLayer(nn.Module):
    """A decoder layer with causal self-attention over a growing cache."""

    def __init__(self, shape: Shape, intermediate: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.mlp = SwiGLU(shape.hidden_size, intermediate)

    def forward(self, x: Tensor, positions: Tensor, past: KeysValues | None) -> tuple[Tensor, KeysValues]:
        """Tokens [N, D] at positions [N] after `past` -> their output [N, D] and the cache with them in it."""
        normed = self.input_layernorm(x)
        fresh = self.self_attn.keys_values(normed, positions)
        keys, values = fresh if past is None else (torch.cat(pair, dim=1) for pair in zip(past, fresh, strict=True))
        mask = torch.arange(keys.shape[1])[None, :] <= positions[:, None]
        x = x + self.self_attn(normed, positions, keys, values, mask)
        return x + self.mlp(self.post_attention_layernorm(x)), (keys, values)


class Target(nn.Module):
    """The decoder stack of a Qwen3 dense model; parameter names are the checkpoint's without `model.`."""

    def __init__(self, shape: Shape, layers: int, intermediate: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(TargetLayer(shape, intermediate) for _ in range(layers))
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)

    def forward(
        self, x: Tensor, start: int, past: Sequence[KeysValues] | None, taps: Sequence[int]
    ) -> tuple[Tensor, list[KeysValues], Tensor]:
        """Embeddings [N, D] of tokens start … start+N−1 -> final-normed states [N, D], the cache, and the outputs of
        the blocks `taps` side by side [N, K·D] (HF's hidden_states[id + 1])."""
        positions = torch.arange(start, start + x.shape[0])
        caches: list[KeysValues] = []
        tapped: dict[int, Tensor] = {}
        for index, layer in enumerate(cast("list[TargetLayer]", list(self.layers))):
            x, cache = layer(x, positions, None if past is None else past[index])
            caches.append(cache)
            if index in taps:
                tapped[index] = x
        return self.norm(x), caches, torch.cat([tapped[tap] for tap in taps], dim=1)


def load_target(source: TargetFiles, maps: Maps) -> tuple[Target, Vocabulary]:
    """The stack with its weights mapped from the target's folder, and its embedding and head. Raises Refused, naming
    what is not plain Qwen3."""
    check_plain(source)
    config = source.config
    rope = config.get("rope_parameters") or {}
    shape = Shape(
        hidden_size=int(source.number("hidden_size")),
        num_attention_heads=int(source.number("num_attention_heads")),
        num_key_value_heads=int(source.number("num_key_value_heads")),
        head_dim=int(source.number("head_dim")),
        rope_theta=float(rope["rope_theta"]) if "rope_theta" in rope else source.number("rope_theta"),
        rms_norm_eps=source.number("rms_norm_eps"),
        attention_bias=bool(config.get("attention_bias", False)),
    )
    with torch.device("meta"):
        model = Target(shape, int(source.number("num_hidden_layers")), int(source.number("intermediate_size")))
    fill(model, {name: maps.tensor(*source.place(name)) for name in dict(model.named_parameters())})
    return model, target_vocabulary(source, maps)


def complete(
    model: Target,
    vocabulary: Vocabulary,
    prompt: Sequence[int],
    taps: Sequence[int],
    stop_at: Sequence[int],
    limit: int,
    step: Callable[[int], None] = lambda _: None,
) -> Completion:
    """Continue `prompt` greedily to an EOS token (kept) or `limit` new tokens; `step` is told each count of new tokens.

    Raises Refused for a tap that the stack does not have, PromptRefused for token ids outside the vocabulary and for
    logits that are not finite.
    """
    check_taps(len(model.layers), taps)
    size = vocabulary.embedding.shape[0]
    if not prompt or max(prompt) >= size:
        raise PromptRefused(
            f"token ids up to {max(prompt, default=-1)}, the target has {vocabulary.embedding.shape[0]}"
        )
    with torch.inference_mode():
        tokens = list(prompt)
        rows: list[Tensor] = []
        for token, tapped in _greedy(model, vocabulary, prompt, taps, limit):
            rows.append(tapped)
            tokens.append(token)
            step(len(tokens) - len(prompt))
            if token in stop_at:
                break
    return Completion(tuple(tokens), len(prompt), torch.cat(rows), tokens[-1] in stop_at)


def _greedy(
    model: Target, vocabulary: Vocabulary, prompt: Sequence[int], taps: Sequence[int], limit: int
) -> Iterator[tuple[int, Tensor]]:
    """The next token, and the tapped states of the tokens fed to get it."""
    past: list[KeysValues] | None = None
    fed, feed = 0, list(prompt)
    for _ in range(limit):
        states, past, tapped = model(vocabulary.embedding[torch.tensor(feed)].float(), fed, past, taps)
        logits = torch.cat([F.linear(states[-1], rows.float()) for rows in torch.split(vocabulary.head, HEAD_ROWS)])
        best = logits.max()
        if not bool(torch.isfinite(best)):
            raise PromptRefused(f"the target's logits are not finite after {fed + len(feed)} tokens; is it damaged?")
        token = int((logits == best).nonzero()[0])  # argmax leaves open which of two equals it returns
        yield token, tapped
        fed, feed = fed + len(feed), [token]
