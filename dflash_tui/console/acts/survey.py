"""Looking at the evaluation host for what is to be evaluated, and refusing before bytes are moved for nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dflash_tui.checkpoints.settings import CONFIG
from dflash_tui.evals.caches import choose
from dflash_tui.evals.errors import EvaluationRefused
from dflash_tui.evals.like import Like
from dflash_tui.evals.preflight import preflight
from dflash_tui.evals.ship import ship
from dflash_tui.evals.survey import survey
from dflash_tui.hosts.base import FileMissing
from dflash_tui.records.requests import SurveyRequest
from dflash_tui.records.survey import Survey

if TYPE_CHECKING:
    from dflash_tui.console.console import Console


@dataclass(frozen=True)
class Asked:
    """Which prompts an evaluation asks for: by id, else the first `count` of the set; and in which folders their hidden
    states are looked for ((): the configured ones)."""

    count: int = 0
    prompts: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    like: Like | None = None


@dataclass(frozen=True)
class Weights:
    """What the harness opens, and what describes it. `identified`: whether its weights are hashed, all of them."""

    path: str
    config: str = ""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    foreign: bool = False
    identified: bool = True


def trained(console: Console, path: str, *, identified: bool = True) -> Weights:
    """A checkpoint of the watched training, which [drafter] of the config describes."""
    overrides = dict(console.config.drafter)
    return Weights(path, str(overrides.pop("config", "")), overrides, identified=identified)


async def look(console: Console, harness: str, weights: Weights | None, asked: Asked) -> Survey:
    """Survey the evaluation host. Raises EvaluationError, HostError."""
    settings = console.evaluation
    folders = asked.folders or settings.hidden_states
    if asked.like is not None and asked.like.hidden_states not in ("", *folders):
        folders = (*folders, asked.like.hidden_states)
    request = SurveyRequest(
        checkpoint=weights.path if weights else None,
        target=settings.target,
        prompts_path=settings.prompts,
        hidden_states=folders,
        space_at=settings.root,
        drafter_config=(weights.config or None) if weights else None,
        overrides=dict(weights.overrides) if weights else {},
        foreign=weights.foreign if weights else False,
        prompts_asked=asked.count or None,
        prompts=asked.prompts,
        weights_id=weights.identified if weights else False,
    )
    found = await survey(console.evaluation_host, settings.python, harness, request)
    said = tuple(replace(item, sentence=of_this_config(console, item.sentence)) for item in found.problems)
    return replace(found, problems=said)


def of_this_config(console: Console, sentence: str) -> str:
    """A sentence about settings with the file that is meant: what reads a checkpoint knows only that it has one."""
    return sentence.replace(CONFIG, console.config.path)


async def refuse_early(console: Console, wanted: str, asked: Asked) -> bool:
    """Find out what makes an evaluation impossible before gigabytes are moved to `wanted` for it; whether they have to
    be. Raises EvaluationRefused."""
    host, settings = console.evaluation_host, console.evaluation
    try:
        await host.stat(wanted)
    except FileMissing:
        found = await look(console, await ship(host, settings.root), None, asked)
        found, _ = choose(found, asked.like.wanted if asked.like else None)
        if refusals := preflight(found, host.name, settings.threads or 1).refusals:
            raise EvaluationRefused("; ".join(refusals)) from None
        return True
    return False
