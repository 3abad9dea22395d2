"""Where `init` has its answers from when a flag is silent: a person, what was found, or nobody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from dflash_tui.config import ConfigError
from dflash_tui.console.discovery.offers import Offer, listed


@dataclass(frozen=True)
class Question:
    """What the flag `flag` would say. `free` describes an answer of one's own; `wrong` tells what is wrong with it, or
    "". `optional`: "" is an answer, which means `none`. `sure`: the first offer is the likely one and may be taken
    unasked."""

    flag: str
    text: str
    free: str
    wrong: Callable[[str], str]
    offers: tuple[Offer, ...] = ()
    optional: bool = False
    none: str = "none"
    sure: bool = True


class Source(Protocol):
    """`looks`: whether offers are of use to it. `forgives`: whether a host that can't be looked at is told and passed
    over."""

    looks: bool
    forgives: bool

    async def answer(self, question: Question) -> str:
        """The answer. Raises ConfigError naming the flag when there is none."""
        ...


class Nobody:
    """No terminal and no --yes: what is needed must be said by flags."""

    looks = False
    forgives = False

    async def answer(self, question: Question) -> str:
        """ "" where that is an answer."""
        if question.optional:
            return ""
        raise ConfigError(
            f"{question.flag} is not given, and there is no terminal to ask on: {question.text} Give the flag, or "
            "--yes to take what is found"
        )


class Taken:
    """--yes: the first offer, where it is a sure one."""

    looks = True
    forgives = False

    async def answer(self, question: Question) -> str:
        """The first offer's value."""
        if question.offers and question.sure:
            return question.offers[0].value
        if question.optional:
            return ""
        found = (
            f"found: {listed([offer.text for offer in question.offers])}" if question.offers else "nothing was found"
        )
        raise ConfigError(f"{question.flag} is not given: {question.text} {found[0].upper()}{found[1:]}; give the flag")
