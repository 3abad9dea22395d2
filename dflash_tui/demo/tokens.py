"""The demo target's tokenizer: a byte-pair encoding of 384 tokens, learned and applied in plain Python.

Its file has the layout of Hugging Face's `tokenizer.json`, so the target folder is an ordinary model folder.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

END, TASK, CODE, MASK = "<|end|>", "<|task|>", "<|code|>", "<|mask|>"
SPECIAL = (END, TASK, CODE, MASK)
"""End of a completion, start of an instruction, start of a program, and the drafter's mask: ids 0 to 3."""

PIECES = r" ?[A-Za-z]+|[0-9]| ?[^\sA-Za-z0-9]|\n *| +"
"""A token never crosses these pieces: a word, a digit, a punctuation mark, a line end with the indent after it."""

_ALPHABET = ["\n", *map(chr, range(32, 127))]


@dataclass(frozen=True)
class Tokenizer:
    """Token strings by id, and the merges in the order they were learned."""

    vocab: tuple[str, ...]
    merges: tuple[tuple[str, str], ...]

    @cached_property
    def ids(self) -> dict[str, int]:
        """Id of every token string."""
        return {token: index for index, token in enumerate(self.vocab)}

    @cached_property
    def _ranks(self) -> dict[tuple[str, str], int]:
        return {pair: rank for rank, pair in enumerate(self.merges)}

    @cached_property
    def _known(self) -> dict[str, list[int]]:
        return {}

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text (no special token is looked for); raises `KeyError` on a character outside ASCII."""
        out: list[int] = []
        for piece in re.findall(PIECES, text):
            if piece not in self._known:
                self._known[piece] = [self.ids[part] for part in self._split(piece)]
            out += self._known[piece]
        return out

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token ids; special tokens are left out."""
        return "".join(self.vocab[index] for index in ids if index >= len(SPECIAL))

    def prompt(self, instruction: str) -> list[int]:
        """Token ids of `prompt_text(instruction)`."""
        return [self.ids[TASK], *self.encode(instruction), self.ids[CODE]]

    def completion(self, program: str) -> list[int]:
        """Token ids of a whole answer, its end mark included."""
        return [*self.encode(program), self.ids[END]]

    def _split(self, piece: str) -> list[str]:
        parts = list(piece)
        while len(parts) > 1:
            rank, at = min(
                (self._ranks.get(pair, len(self.merges)), at) for at, pair in enumerate(itertools.pairwise(parts))
            )
            if rank == len(self.merges):
                break
            parts[at : at + 2] = ["".join(parts[at : at + 2])]
        return parts

    def save(self, path: Path) -> None:
        """Write the tokenizer as a `tokenizer.json`."""
        added = [
            {"id": i, "content": t, "special": True}
            | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
            for i, t in enumerate(SPECIAL)
        ]
        pieces = {"type": "Split", "pattern": {"Regex": PIECES}, "behavior": "Isolated", "invert": False}
        model = {"type": "BPE", "vocab": self.ids, "merges": [list(pair) for pair in self.merges]}
        whole = {"version": "1.0", "added_tokens": added, "pre_tokenizer": pieces, "model": model}
        whole["decoder"] = {"type": "Fuse"}
        path.write_text(json.dumps(whole, separators=(",", ":")) + "\n", encoding="utf-8")

    @staticmethod
    def load(path: Path) -> Tokenizer:
        """Read what `save` wrote."""
        model = json.loads(path.read_text(encoding="utf-8"))["model"]
        vocab = sorted(model["vocab"], key=model["vocab"].__getitem__)
        return Tokenizer(tuple(vocab), tuple((a, b) for a, b in model["merges"]))


def prompt_text(instruction: str) -> str:
    """What the target is given to get a program: task mark, instruction, code mark."""
    return f"{TASK}{instruction}{CODE}"


def learn(texts: Iterable[str], size: int) -> Tokenizer:
    """Learn merges until the vocabulary has `size` tokens: the most frequent pair first, ties by the pair's text."""
    counts = Counter(piece for text in texts for piece in re.findall(PIECES, text))
    words = {piece: list(piece) for piece in counts}
    vocab = [*SPECIAL, *_ALPHABET]
    merges: list[tuple[str, str]] = []
    while len(vocab) < size:
        pairs: Counter[tuple[str, str]] = Counter()
        for piece, parts in words.items():
            for pair in itertools.pairwise(parts):
                pairs[pair] += counts[piece]
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        if "".join(best) not in vocab:
            vocab.append("".join(best))
        for parts in words.values():
            at = 0
            while at < len(parts) - 1:
                if (parts[at], parts[at + 1]) == best:
                    parts[at : at + 2] = ["".join(best)]
                at += 1
    return Tokenizer(tuple(vocab), tuple(merges))
