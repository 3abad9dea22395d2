"""Something that a config could name, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_LONGEST = 120  # characters of a reason


_LISTED = 12


def listed(texts: Sequence[str]) -> str:
    """Some of what was found, in one sentence: a cluster may have thousands."""
    more = f"; and {len(texts) - _LISTED:,} more" if len(texts) > _LISTED else ""
    return "; ".join(texts[:_LISTED]) + more


def distinct(*lists: Sequence[Offer]) -> tuple[Offer, ...]:
    """The offers of several lists, each value once."""
    found = {offer.value: offer for offers in reversed(lists) for offer in reversed(offers)}
    return tuple(reversed(found.values()))


@dataclass(frozen=True)
class Offer:
    """`value` goes into the config; `why` is for a person, "" where the value says enough; `shown` stands for the value
    where that says too little."""

    value: str
    why: str = ""
    shown: str = ""

    @property
    def text(self) -> str:
        """The offer in one line; a host may have put anything into it."""
        name = self.shown or self.value
        text = f"{name}: {self.why[:_LONGEST]}" if self.why else name
        return text.replace("\n", " ")
