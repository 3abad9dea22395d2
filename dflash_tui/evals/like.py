"""What an evaluation shares with an earlier result, so that the two can be set against each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dflash_tui.evals.caches import Wanted
from dflash_tui.records.survey import Survey


@dataclass(frozen=True)
class Like:
    """What the result `name` records of how it was measured. Empty, or 0: it does not record that, and `unrecorded`
    says so in words.

    `prompts` are the ids that were asked, `measured` those with values, `hashes` of their texts; `prompt_count` is how
    many where only that is known. `hidden_states` is the folder, `features` the identities of its files.
    """

    name: str
    sha256: str
    path: str
    preset: str = ""
    prompts: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    prompt_count: int = 0
    hashes: Mapping[str, str] = field(default_factory=dict)
    blocks_per_prompt: int = 0
    block_size: int = 0
    anchors: str = ""
    hidden_states: str = ""
    features: Mapping[str, str] = field(default_factory=dict)
    unrecorded: tuple[str, ...] = ()

    @property
    def wanted(self) -> Wanted | None:
        """The folder of hidden states that is to be used again."""
        return Wanted(self.name, self.hidden_states, self.measured) if self.hidden_states else None

    @property
    def copied(self) -> dict[str, object]:
        """What is copied, as it is recorded."""
        asked: object = list(self.prompts) or self.prompt_count
        every = {
            "prompts": asked,
            "blocks_per_prompt": self.blocks_per_prompt,
            "block_size": self.block_size,
            "anchors": self.anchors,
            "hidden_states": self.hidden_states,
        }
        return {key: value for key, value in every.items() if value}


def other_texts(like: Like, found: Survey) -> tuple[str, ...]:
    """Prompts that have another text in the set than the result was measured on."""
    return tuple(item.id for item in found.prompts if like.hashes.get(item.id, item.sha256) != item.sha256)


def made_again(like: Like, found: Survey) -> tuple[str, ...]:
    """Prompts whose hidden states are no longer the ones that the result was measured on."""
    return tuple(
        item.id
        for item in found.prompts
        if item.features and item.id in like.features and like.features[item.id] != item.features_id
    )


def in_words(like: Like) -> tuple[str, ...]:
    """What is copied and what can't be, for the plan."""
    asked = f"its {len(like.prompts)} prompts" if like.prompts else f"the first {like.prompt_count} prompts"
    words = [
        asked if like.prompts or like.prompt_count else "",
        f"{like.blocks_per_prompt} blocks each" if like.blocks_per_prompt else "",
        f"block size {like.block_size}" if like.block_size else "",
        f"anchors {like.anchors}" if like.anchors else "",
        f"hidden states {like.hidden_states}" if like.hidden_states else "",
    ]
    lines = [f"like {like.name}: {', '.join(word for word in words if word)}"]
    if like.unrecorded:
        lines.append(f"not recorded by {like.name}: {', '.join(like.unrecorded)}")
    return tuple(lines)
