"""The frozen ends of a drafter: which vector a token enters as, and which rows score it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dflash_tui.harness.mapped import Maps
from dflash_tui.harness.target_files import TargetFiles


@dataclass(frozen=True)
class Vocabulary:
    """The two frozen ends of a drafter: `embedding` [V, D] and `head` [V or V_d, D], in their stored dtype.

    `target_ids` [V_d] (int64, ascending) says which target token each head row stands for when the draft vocabulary is
    reduced; None when rows are target ids.
    """

    embedding: Tensor
    head: Tensor
    target_ids: Tensor | None = None

    def rows(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Head rows of target tokens, and whether each is in the draft vocabulary at all (row 0 stands in if not)."""
        if self.target_ids is None:
            return tokens, torch.ones_like(tokens, dtype=torch.bool)
        rows = torch.searchsorted(self.target_ids, tokens).clamp(max=self.target_ids.shape[0] - 1)
        known = self.target_ids[rows] == tokens
        return torch.where(known, rows, 0), known


def target_vocabulary(source: TargetFiles, maps: Maps) -> Vocabulary:
    """The target's own embedding and head, mapped; with tied embeddings they are one tensor. Raises Refused."""
    embedding = maps.tensor(*source.place("embed_tokens.weight"))
    head = embedding if source.tied else maps.tensor(*source.place("lm_head.weight"))
    return Vocabulary(embedding, head)
