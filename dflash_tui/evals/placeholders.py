"""The words of a command template: `{name}` is filled, `{{` and `}}` are braces. No shell ever sees them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from dflash_tui.evals.errors import EvaluationError

PLACEHOLDERS: Mapping[str, str] = {
    "checkpoint": "the checkpoint in the run directory: its file, or the folder of a format that has several",
    "run_dir": "a folder of this run alone, in its run directory; the script's working directory",
    "prompts": "how many prompts: 3 (quick) or 10 (full)",
    "blocks": "how many blocks a prompt: 15 (quick) or 30 (full)",
    "prompts_file": "evaluation.prompts",
    "block_size": "evaluation.block_size, else the drafter's own",
    "target": "evaluation.target",
    "hidden_states": "evaluation.hidden_states (the first folder)",
    "threads": "how many threads it may use",
    "step": "the checkpoint's step",
}
_PARTS = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def used(words: Iterable[str]) -> frozenset[str]:
    """The placeholders in a template. Raises EvaluationError for one that is not known, and for a lone brace."""
    found = set()
    for word in words:
        for part in _PARTS.finditer(word):
            if part[0] in ("{{", "}}"):
                continue
            if part[1] is None:
                raise EvaluationError(
                    f"harness.command: found a lone {part[0]!r} in {word!r}; write {2 * part[0]!r} for the character"
                )
            found.add(_known(part[1], word))
    return frozenset(found)


def filled(word: str, values: Mapping[str, object]) -> str:
    """A template word with what is known put in; placeholders without a value, and doubled braces, stay for later."""
    return _PARTS.sub(lambda part: str(values[part[1]]) if part[1] in values else part[0], word)


def complete(word: str, values: Mapping[str, object]) -> str:
    """A template word with every placeholder filled. Raises EvaluationError naming one that has no value."""

    def put(part: re.Match[str]) -> str:
        if part[0] in ("{{", "}}"):
            return part[0][0]
        if part[1] not in values:
            raise EvaluationError(f"harness.command: {part[0]} can't be filled: {PLACEHOLDERS[part[1]]} is not known")
        return str(values[part[1]])

    return _PARTS.sub(put, word)


def _known(name: str, word: str) -> str:
    if name in PLACEHOLDERS:
        return name
    near = difflib.get_close_matches(name, PLACEHOLDERS, 1)
    hint = f"did you mean {{{near[0]}}}?" if near else f"known: {', '.join(PLACEHOLDERS)}"
    raise EvaluationError(
        f"harness.command: found {{{name}}} in {word!r}, which is no placeholder; {hint} ({{{{ stands for a brace)"
    )
