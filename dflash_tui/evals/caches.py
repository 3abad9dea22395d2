"""Which folder of hidden states an evaluation uses, where several are configured, and why."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dflash_tui.evals.errors import EvaluationError
from dflash_tui.records.survey import Survey, SurveyedCache


@dataclass(frozen=True)
class Wanted:
    """A folder that wins while it still has usable hidden states of all `prompts`: that of the result `name`, which an
    evaluation is to be like."""

    name: str
    folder: str
    prompts: tuple[str, ...]


@dataclass(frozen=True)
class Chosen:
    """`why` is "" where there was nothing to choose; `usable` says for each folder of how many prompts it has usable
    hidden states."""

    folder: str
    why: str
    usable: dict[str, int] = field(default_factory=dict)


def choose(found: Survey, like: Wanted | None = None) -> tuple[Survey, Chosen]:
    """The survey as of one folder for the whole evaluation, and which.

    The rule: the folder of the result that the evaluation is to be like, if it still can; else the one that is usable
    for most of the prompts asked; of equals one whose files all record what they are of; of equals the first in the
    config. Raises EvaluationError when the survey looked into none.
    """
    if not found.caches:
        raise EvaluationError("no folder of hidden states was looked through; set evaluation.hidden_states")
    ranked = sorted(found.caches, key=lambda cache: (-_usable(cache), not _recorded(cache)))
    best, first = ranked[0], ""
    if like is not None and (theirs := next((c for c in found.caches if c.folder == like.folder), None)):
        present = {prompt.id for prompt in theirs.prompts if prompt.features}
        if set(like.prompts) <= present:
            best, first = theirs, f"as {like.name} used them"
        else:
            kept = len(set(like.prompts) & present)
            first = f"{like.name} used {like.folder}, which has {kept} of its {len(like.prompts)} prompts now"
    usable = {cache.folder: _usable(cache) for cache in found.caches}
    chosen = Chosen(best.folder, _why(found, best, first), usable)
    problems = (*found.problems, *best.problems)
    return replace(found, prompts=best.prompts, memory_needed=best.memory_needed, problems=problems), chosen


def _usable(cache: SurveyedCache) -> int:
    return sum(prompt.features is not None for prompt in cache.prompts)


def _recorded(cache: SurveyedCache) -> bool:
    """Whether every usable file records its target and its layers."""
    used = [prompt for prompt in cache.prompts if prompt.features]
    return bool(used) and all(p.layer_ids and p.identity.get("target_config_sha256") for p in used)


def _why(found: Survey, best: SurveyedCache, first: str) -> str:
    if len(found.caches) == 1:
        return first
    asked = len(best.prompts)
    count = f"{_usable(best)} of {asked} prompt{'' if asked == 1 else 's'}"
    others = "; ".join(_beside(best, cache) for cache in found.caches if cache is not best)
    return "; ".join(part for part in (first, f"{count}; {others}") if part)


def _beside(best: SurveyedCache, other: SurveyedCache) -> str:
    mine, theirs = _usable(best), _usable(other)
    if theirs != mine or not mine:
        return f"{other.folder} has {theirs}"
    unrecorded = _recorded(best) and not _recorded(other)
    return f"{other.folder} has as many{', of unrecorded origin' if unrecorded else ''}"
