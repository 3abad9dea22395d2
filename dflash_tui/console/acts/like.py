"""What a result records of how it was measured: copied by an evaluation that is to be set against it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dflash_tui.console.acts.shown import baseline_or_notice
from dflash_tui.console.errors import ConsoleError
from dflash_tui.evals.like import Like
from dflash_tui.evals.plan import ANCHORS
from dflash_tui.measure.anchors import PRESETS
from dflash_tui.records.manifest import Manifest
from dflash_tui.records.result import Evaluation
from dflash_tui.results.evaluation import read_manifest

if TYPE_CHECKING:
    from dflash_tui.console.console import Console


def like_of(result: Evaluation, host: str) -> Like:
    """What can be copied of a result, for an evaluation on `host`. Raises ConsoleError when it records nothing of how
    it was measured."""
    manifest = read_manifest(Path(result.path)) if result.origin == "run" else None
    prompts = result.prompts_asked or result.prompts_present or tuple(result.per_prompt)
    count = len(prompts) or result.prompts_asked_count or result.prompt_count or 0
    blocks = _blocks_per_prompt(result, manifest)
    anchors = result.anchors if result.anchors == ANCHORS else ""
    folder = manifest.hidden_states if manifest is not None and _lies_on(result, host) else ""
    if not (count or blocks or result.block_size or anchors or folder):
        raise ConsoleError(
            f"{result.name} records nothing of how it was measured (prompts, blocks, block size, anchors, hidden "
            "states): there is nothing to copy; evaluate without --like"
        )
    return Like(
        name=result.name,
        sha256=result.sha256,
        path=result.path,
        preset=result.preset or "",
        prompts=prompts,
        measured=tuple(result.per_prompt) or result.prompts_present or (),
        prompt_count=count,
        hashes=dict(result.prompt_hashes),
        blocks_per_prompt=blocks,
        block_size=result.block_size or 0,
        anchors=anchors,
        hidden_states=folder,
        features=_features(manifest),
        unrecorded=tuple(
            word
            for word, known in (
                ("which prompts" if count else "prompts", bool(prompts)),
                ("the prompts' texts", bool(result.prompt_hashes) or not prompts),
                ("blocks a prompt", bool(blocks)),
                ("block size", bool(result.block_size)),
                (f"anchors ({result.anchors} is not this harness's)" if result.anchors else "anchors", bool(anchors)),
                (f"hidden states on {host}", bool(folder)),
            )
            if not known
        ),
    )


def shown_baseline(console: Console) -> Evaluation:
    """The result that the shown one stands beside, else the one that it would. Raises ConsoleError."""
    results = console.state.results
    if results.previous is not None:
        return results.previous
    if results.current is not None and (found := baseline_or_notice(console, results.current)) is not None:
        return found
    raise ConsoleError("no baseline is shown to evaluate like; pin a result (b), or configure a [[baseline]]")


def preset_of(like: Like, asked: str) -> tuple[str, int]:
    """The preset's name and the blocks a prompt: as recorded; where blocks are not, those of the preset that has as
    many prompts, else of `asked`."""
    if like.preset in PRESETS and like.blocks_per_prompt in (0, PRESETS[like.preset][1]):
        return like.preset, PRESETS[like.preset][1]
    if like.blocks_per_prompt:
        return "like", like.blocks_per_prompt
    fitting = (blocks for prompts, blocks in PRESETS.values() if prompts == like.prompt_count)
    return "like", next(fitting, PRESETS[asked][1])


def _blocks_per_prompt(result: Evaluation, manifest: Manifest | None) -> int:
    """As it was asked; of an imported result the most that a prompt has, or equal shares of all blocks."""
    if manifest is not None and manifest.blocks_per_prompt:
        return PRESETS["quick"][1] if result.preset == "quick" else manifest.blocks_per_prompt
    if result.per_prompt:
        return max(score.blocks for score in result.per_prompt.values())
    prompts = result.prompt_count or 0
    return result.pooled.blocks // prompts if prompts and result.pooled.blocks % prompts == 0 else 0


def _lies_on(result: Evaluation, host: str) -> bool:
    return any(fact.kind == "run.directory" and fact.source.host == host for fact in result.facts)


def _features(manifest: Manifest | None) -> dict[str, str]:
    prompts = manifest.prompts if manifest is not None else ()
    return {prompt.id: prompt.features_id for prompt in prompts if prompt.features_id}
