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
    unasked. `sought`: its host was looked through for offers."""

    flag: str
    text: str
    free: str
    wrong: Callable[[str], str]
    offers: tuple[Offer, ...] = ()
    optional: bool = False
    none: str = "none"
    sure: bool = True
    sought: bool = False


class StepBack(Exception):
    """A person wants to answer the question before once more."""


class Source(Protocol):
    """`looks`: whether offers are of use to it. `forgives`: whether a host that can't be looked at is told and passed
    over."""

    looks: bool
    forgives: bool

    async def answer(self, question: Question) -> str:
        """The answer. Raises ConfigError naming the flag when there is none."""
        ...


class Retraced:
    """Another source, whose answers are known already up to where somebody went back."""

    def __init__(self, source: Source, told: Callable[[str], None]) -> None:
        self.looks, self.forgives = source.looks, source.forgives
        self._source, self._told = source, told
        self._known: list[str] = []
        self._at = 0

    def back(self) -> None:
        """The questions begin anew; all but the last one that was answered have their answer."""
        if not self._known:
            self._told("this is the first question")
        self._known = self._known[:-1]
        self._at = 0

    async def answer(self, question: Question) -> str:
        """The answer. Raises StepBack, and what the source raises."""
        if self._at == len(self._known):
            self._known.append(await self._source.answer(question))
        self._at += 1
        return self._known[self._at - 1]


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
