"""Questions of `init` on a terminal: numbered offers, a default, or an answer of one's own. All on stderr."""

from __future__ import annotations

import sys

from dflash_tui.cli.asking import read_line
from dflash_tui.cli.printing import narrate
from dflash_tui.config import ConfigError
from dflash_tui.console.acts.init_source import Question, StepBack

_BACK = ("<", "back")


class Terminal:
    """A person who answers."""

    looks = True
    forgives = True

    def __init__(self) -> None:
        self._begun = False

    async def answer(self, question: Question) -> str:
        """Ask until the answer can be used. Raises ConfigError when the terminal has ended, StepBack when it is "<"."""
        from dflash_tui.console.words import plain

        if not self._begun:
            narrate("an empty answer takes what stands in [ ]; < goes back to the question before; Ctrl-C leaves")
        self._begun = True
        narrate(f"\n{question.text}")
        if question.sought and not question.offers:
            narrate("  nothing was found there")
        for number, offer in enumerate(question.offers, start=1):
            narrate(f"  {number}  {offer.text}")
        ways = [
            *(["a number"] if question.offers else []),
            question.free,
            *([f"- for {question.none}"] if question.optional else []),
        ]
        default = self._default(question)
        shown = f" [{plain(default)}]" if default else ""
        while True:
            print(f"{', '.join(way for way in ways if way)}{shown}: ", end="", file=sys.stderr, flush=True)
            line = await read_line()
            if not line.endswith("\n"):
                raise ConfigError(f"the answers ended at {question.flag}: {question.text} Give the flag")
            said = line.strip() or default
            if said in _BACK:
                raise StepBack
            if said == "-" and question.optional:
                return ""
            number = int(said) if said.isdecimal() and len(said) < 9 else 0
            if 0 < number <= len(question.offers):
                return question.offers[number - 1].value
            if not (trouble := self._trouble(question, said)):
                return said
            narrate(trouble)

    def _trouble(self, question: Question, said: str) -> str:
        if not said:
            return "expected an answer"
        if said.isdecimal() and question.offers:
            return f"found {said}, expected a number from 1 to {len(question.offers)}"
        return question.wrong(said)

    def _default(self, question: Question) -> str:
        if question.offers and question.sure:
            return "1"
        return "-" if question.optional else ""
