"""Drafting, measured: CPU time and memory a block of the harness against a straightforward evaluation (every block on
its own, float32 weights, whole-vocabulary sorts), side by side in one process, on one thread. Both must rank alike.

    python -m tests.bench.evaluation [HIDDEN VOCABULARY]
"""

from __future__ import annotations

import ctypes
import gc
import heapq
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import torch
import torch.nn.functional as F
from torch import Tensor

from dflash_tui.harness.draft import draft
from dflash_tui.harness.drafter import Drafter
from dflash_tui.harness.vocabulary import Vocabulary
from dflash_tui.measure.anchors import FULL_ANCHORS
from dflash_tui.measure.streaks import streak
from dflash_tui.records.block import RANK_LIMIT, BlockRecord
from dflash_tui.records.settings import DrafterSettings

HIDDEN, VOCABULARY = 1024, 50_000
PROMPTS, PROMPT_LENGTH, BLOCK = 3, 200, 16
TREE_BUDGET = 64
CLOSE = 1e-3
"""Logits nearer than this may change places between two correct float32 evaluations."""


@dataclass(frozen=True)
class Row:
    """One side: CPU seconds and growth of the resident set at its peak (MiB), for so many blocks."""

    name: str
    blocks: int
    seconds: float
    mebibytes: float


@dataclass(frozen=True)
class World:
    """A random drafter with its two frozen ends, stored as bf16, and the tokens and features of one prompt each."""

    drafter: Drafter
    vocabulary: Vocabulary
    tokens: tuple[Tensor, ...]
    features: tuple[Tensor, ...]
    anchors: tuple[int, ...]


def world(hidden: int, vocabulary: int) -> World:
    """References are planted at ranks 1, 2, 3 … of the naive ordering, so that streaks are of every length."""
    torch.manual_seed(1)
    settings = DrafterSettings(
        hidden_size=hidden, num_hidden_layers=5, num_attention_heads=hidden // 64, num_key_value_heads=hidden // 256,
        head_dim=128, intermediate_size=3 * hidden, vocab_size=vocabulary, taps=(1, 4, 7, 10, 13), block_size=BLOCK,
        mask_token_id=vocabulary - 1, rope_theta=1e7, rms_norm_eps=1e-6, sliding_window=256,
        layer_masks=("sliding-causal",) * 4 + ("full",),
    )  # fmt: skip
    drafter = Drafter(settings).bfloat16().eval().requires_grad_(False)
    for parameter in drafter.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
    ends = [torch.randn(vocabulary, hidden).bfloat16() for _ in range(2)]
    anchors = tuple(range(PROMPT_LENGTH, PROMPT_LENGTH + FULL_ANCHORS * BLOCK, BLOCK))  # blocks that do not overlap
    length = anchors[-1] + BLOCK
    features = tuple(torch.randn(length, 5 * hidden).bfloat16() for _ in range(PROMPTS))
    tokens = tuple(torch.randint(0, vocabulary - 1, (length,)) for _ in range(PROMPTS))
    found = World(drafter, Vocabulary(ends[0], ends[1] * (5 / hidden**0.5)), tokens, features, anchors)
    for own, states in zip(tokens, features, strict=True):
        plain = Naive(found)
        for anchor in anchors:
            order = plain.logits(own, states, anchor).topk(80).indices
            wanted = torch.empty(BLOCK - 1).exponential_(0.5).long().clamp(max=79)
            own[anchor + 1 : anchor + BLOCK] = order[torch.arange(BLOCK - 1), wanted]
    return found


class Naive:
    """The forward pass as `DOMAIN.md` writes it, one block at a time, nothing shared between blocks."""

    def __init__(self, world: World) -> None:
        self.weights = {name: tensor.float() for name, tensor in world.drafter.state_dict().items()}
        self.embedding, self.head = world.vocabulary.embedding.float(), world.vocabulary.head.float()
        self.settings = world.drafter.settings

    def norm(self, x: Tensor, name: str) -> Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.settings.rms_norm_eps)
        out: Tensor = x * scale * self.weights[f"{name}.weight"]
        return out

    def linear(self, x: Tensor, name: str) -> Tensor:
        out: Tensor = x @ self.weights[f"{name}.weight"].T
        return out

    def heads(self, x: Tensor, layer: str, projection: str, positions: Tensor | None) -> Tensor:
        size = self.settings.head_dim
        out = self.linear(x, f"{layer}.self_attn.{projection}_proj").view(len(x), -1, size)
        if positions is None:
            return out
        out = self.norm(out, f"{layer}.self_attn.{projection}_norm")
        angles = positions[:, None].float() / self.settings.rope_theta ** (torch.arange(0, size, 2) / size)
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        one, two = out.chunk(2, -1)
        return torch.cat((one * cos - two * sin, two * cos + one * sin), -1)

    def logits(self, tokens: Tensor, features: Tensor, anchor: int) -> Tensor:
        """[B − 1, V], slots 1 … B − 1."""
        s = self.settings
        context = self.norm(self.linear(features[:anchor].float(), "fc"), "hidden_norm")
        x = self.embedding[torch.tensor([int(tokens[anchor])] + [s.mask_token_id] * (s.block_size - 1))]
        slots = torch.arange(anchor, anchor + s.block_size)
        keys_at = torch.arange(anchor + s.block_size)
        distance = slots[:, None] - keys_at[None, :]
        for index, kind in enumerate(s.layer_masks):
            layer = f"layers.{index}"
            normed = self.norm(x, f"{layer}.input_layernorm")
            both = torch.cat((context, normed))
            queries = self.heads(normed, layer, "q", slots)
            keys, values = self.heads(both, layer, "k", keys_at), self.heads(both, layer, "v", None)
            repeat = s.num_attention_heads // s.num_key_value_heads
            keys, values = (part.repeat_interleave(repeat, 1).transpose(0, 1) for part in (keys, values))
            scores = queries.transpose(0, 1) @ keys.transpose(1, 2) * s.head_dim**-0.5
            if kind != "full":
                scores = scores.masked_fill((distance < 0) | (distance >= (s.sliding_window or 0)), float("-inf"))
            mixed = (scores.softmax(-1) @ values).transpose(0, 1).reshape(s.block_size, -1)
            x = x + self.linear(mixed, f"{layer}.self_attn.o_proj")
            normed = self.norm(x, f"{layer}.post_attention_layernorm")
            gated = F.silu(self.linear(normed, f"{layer}.mlp.gate_proj")) * self.linear(normed, f"{layer}.mlp.up_proj")
            x = x + self.linear(gated, f"{layer}.mlp.down_proj")
        return self.norm(x, "norm")[1:] @ self.head.T

    def evaluate(self, tokens: Tensor, features: Tensor, anchor: int) -> tuple[list[int], int, list[bool]]:
        """Ranks, acceptance of a tree of TREE_BUDGET nodes, and which ranks no other evaluation should change."""
        logprobs = self.logits(tokens, features, anchor).double().log_softmax(-1)
        values, order = logprobs.sort(dim=-1, descending=True, stable=True)
        reference = tokens[anchor + 1 : anchor + self.settings.block_size]
        ranks = (order == reference[:, None]).int().argmax(-1)
        near = F.pad(values[:, :-1] - values[:, 1:], (1, 1), value=1.0).unfold(1, 2, 1).amin(-1)
        sure = near.gather(1, ranks[:, None])[:, 0] > CLOSE
        rows = values[:, :TREE_BUDGET].tolist()
        return (ranks + 1).tolist(), _accepted(rows, (ranks + 1).tolist()), sure.tolist()


def _accepted(logprobs: list[list[float]], ranks: list[int]) -> int:
    nodes: set[tuple[int, ...]] = set()
    heap: list[tuple[float, tuple[int, ...]]] = [(-logprobs[0][0], (1,))]
    while heap and len(nodes) < TREE_BUDGET:
        _, path = heapq.heappop(heap)
        nodes.add(path)
        following = [(*path[:-1], path[-1] + 1)] + ([(*path, 1)] if len(path) < len(logprobs) else [])
        for new in following:
            if new[-1] <= TREE_BUDGET:
                heapq.heappush(heap, (-sum(logprobs[i][rank - 1] for i, rank in enumerate(new)), new))
    return max((d for d in range(len(ranks) + 1) if tuple(ranks[:d]) in nodes), default=0)


def measure(hidden: int = HIDDEN, vocabulary: int = VOCABULARY) -> list[Row]:
    """The naive side (one prompt, as its cost a block does not depend on the others) and the harness (all three).

    Raises AssertionError when the two disagree on a rank that float32 can tell, or on most of the trees.
    """
    torch.set_num_threads(1)
    with torch.inference_mode():
        found = world(hidden, vocabulary)
        expected: list[tuple[list[int], int, list[bool]]] = []

        def naively() -> int:
            plain = Naive(found)
            expected.extend(plain.evaluate(found.tokens[0], found.features[0], anchor) for anchor in found.anchors)
            return len(found.anchors)

        naive = _measured("naive", naively)
    blocks: list[BlockRecord] = []

    def ours() -> int:
        for index in range(PROMPTS):
            for group in draft(
                found.drafter, found.vocabulary, str(index), found.tokens[index], found.features[index],
                found.anchors, BLOCK,
            ):  # fmt: skip
                blocks.extend(group)
        return len(blocks)

    harness = _measured("harness", ours)
    _compare(expected, blocks[: len(expected)])
    return [naive, harness]


def _compare(expected: list[tuple[list[int], int, list[bool]]], blocks: list[BlockRecord]) -> None:
    told = 0
    trees = 0
    for (ranks, accepted, sure), block in zip(expected, blocks, strict=True):
        for mine, other, certain in zip(block.ranks, ranks, sure, strict=True):
            told += certain
            assert not certain or mine == (other if other <= RANK_LIMIT else None), (block, ranks)
        trees += accepted == sum(node <= TREE_BUDGET for node in block.tree)
    assert told > 0.9 * len(blocks) * (BLOCK - 1), "too few ranks are far enough apart to compare"
    assert trees > 0.95 * len(blocks), f"{trees} of {len(blocks)} trees alike"
    assert len({streak(block.ranks, 1) for block in blocks}) > 2, "references were not planted"


def _measured(name: str, work: Callable[[], int]) -> Row:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again at the present size
    start = process_time()
    blocks = work()
    seconds = process_time() - start
    return Row(name, blocks, seconds, (_status("VmHWM") - before) / 1024)


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith(f"{key}:")).split()[1])


def table(rows: list[Row]) -> str:
    """One line a side; ratios are against the naive one."""
    first = rows[0]
    lines = [f"{'':<10}{'blocks':>7}{'CPU s':>9}{'ms/block':>10}{'ratio':>8}{'peak MiB':>10}{'ratio':>8}"]
    for row in rows:
        each = row.seconds / row.blocks
        speed, memory = first.seconds / first.blocks / each, row.mebibytes / first.mebibytes
        lines.append(
            f"{row.name:<10}{row.blocks:>7}{row.seconds:>9.1f}{each * 1000:>10.1f}{speed:>7.1f}×"
            f"{row.mebibytes:>10.0f}{memory:>7.2f}×"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sizes = [int(word) for word in sys.argv[1:3]]
    print(table(measure(*sizes)))
