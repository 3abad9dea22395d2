"""The report of an evaluation, in Markdown: what was evaluated and where it lies, its values, how they compare and how
far they can be believed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dflash_tui.records.finding import Comparison, Finding
from dflash_tui.records.result import METRICS, Evaluation, Score
from dflash_tui.results import evidence
from dflash_tui.results.caveats import caveats_of, caveats_of_comparison, caveats_of_others, merged, voided
from dflash_tui.results.compare import compare
from dflash_tui.results.figures import bounds, signed
from dflash_tui.results.markdown import code, plain, table
from dflash_tui.results.spread import level, spread, streak_of

LABELS = {"top1": "vanilla top-1 streak", "top4": "DDTree top-4 streak", "top8": "DDTree top-8 streak"}
TREE_BUDGET = "64"
VOID = "void"  # in the place of a value that can't be believed
GLYPHS = {"void": "✖", "block": "■", "warn": "▲", "note": "●"}


def report(
    current: Evaluation,
    *,
    others: Sequence[Evaluation] = (),
    previous: Evaluation | None = None,
    live_now: dict[str, Any] | None = None,
) -> str:
    """Markdown about `current`; `others` are further results of the same checkpoint (a quick one beside a full one).

    Differences from `previous` are taken at equal block counts where `current`, its quick part or one of `others` has
    as many. `live_now` {step, total, line, at} is the training's newest line at the time of the report.
    """
    side = _equal_blocks(current, others, previous)
    comparison = compare(side, previous) if previous is not None else None
    title = f"# {_what(current)}" + (f" against {plain(previous.name)}" if previous is not None else "")
    sections = [
        [title],
        _evaluated(current, others, previous),
        _values(current, others, previous),
        _per_prompt(current),
        _compared(side, comparison),
        _caveats(current, others, previous, comparison),
        _training(current, live_now),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _what(evaluation: Evaluation) -> str:
    step = evidence.step(evaluation)
    words = [plain(evaluation.training or evaluation.name), f"step {step}" if step is not None else ""]
    return " ".join(word for word in words if word)


def _equal_blocks(current: Evaluation, others: Sequence[Evaluation], previous: Evaluation | None) -> Evaluation:
    """The result of the checkpoint that has as many blocks as `previous`, of one size; `current` where none has."""
    if previous is None or current.blocks:  # with blocks at hand, equal parts are taken by `compare`
        return current
    size = evidence.block_size(current)
    same = [e for e in (current, *others) if evidence.same_checkpoint(current, e) and evidence.block_size(e) == size]
    return next((result for result in same if result.pooled.blocks == previous.pooled.blocks), current)


def _evaluated(current: Evaluation, others: Sequence[Evaluation], previous: Evaluation | None) -> list[str]:
    lines = ["## What was evaluated", "", f"- Checkpoint: {_checkpoint(current)}"]
    if current.weights_id:
        lines.append(f"- Weights: {code(current.weights_id)}")
    if current.run_dir:
        host = evidence.source(current, "run.directory").host
        lines.append(f"- Run directory: {code(f'{host}:{current.run_dir}' if host else current.run_dir)}")
    link = evidence.fact(current, "link.method")
    if link is not None:
        lines.append(f"- Checkpoint in the run directory: {plain(_linked(str(link.value)))} ({code(str(link.source))})")
    lines.append(f"- Records: {code(current.path)} (sha256 {code(current.sha256[:12])})")
    lines.append(f"- Measured: {plain(_measured(current))}")
    for other in others:
        lines.append(f"- Beside it: {plain(other.name)}, {plain(_measured(other))} ({code(other.path)})")
    if previous is not None:
        where = f"{code(previous.path)}, sha256 {code(previous.sha256[:12])}"
        lines.append(
            f"- Previous: {plain(previous.name)}, {_checkpoint(previous)}, {plain(_measured(previous))} ({where})"
        )
    return lines


def _checkpoint(evaluation: Evaluation) -> str:
    step = evidence.step(evaluation)
    path = evaluation.checkpoint_path or evaluation.checkpoint_name
    words = [code(path) if path else "unrecorded"]
    if step is not None:
        words.append(f"step {step}" + (f" of {plain(evaluation.training)}" if evaluation.training else ""))
    file = evidence.fact(evaluation, "checkpoint.file")
    if file is not None and isinstance(file.value, dict):
        size, mtime = evidence.whole(file.value.get("size")), file.value.get("mtime")
        if size is not None:
            words.append(f"{size:,} bytes")
        if mtime is not None:
            words.append(f"saved {plain(str(mtime))}")
        if file.source.path and file.source.path != path and str(file.source) != path:
            words.append(f"from {code(str(file.source))}")
    return ", ".join(words)


def _linked(method: str) -> str:
    return {"hardlink": "hard link, no bytes copied"}.get(method, method)


def _measured(evaluation: Evaluation) -> str:
    asked, prompts = evidence.asked_count(evaluation), evidence.measured_count(evaluation)
    size = evidence.block_size(evaluation)
    words = [f"{evaluation.preset} preset" if evaluation.preset else ""]
    if prompts is not None:
        words.append(f"{prompts} of {asked} prompts" if asked is not None else f"{prompts} prompts")
    words.append(f"{evaluation.pooled.blocks} blocks" if evaluation.pooled.blocks else "blocks unrecorded")
    words.append(f"block size {size}" if size is not None else "block size unrecorded")
    words.append(f"anchors {evidence.anchors(evaluation) or 'unrecorded'}")
    words.append(f"harness {evaluation.harness[:12]}" if evaluation.harness else "")
    words.append(f"made {evaluation.created_at}" if evaluation.created_at else "")
    return ", ".join(word for word in words if word)


def _values(current: Evaluation, others: Sequence[Evaluation], previous: Evaluation | None) -> list[str]:
    shown = sorted((current, *others), key=lambda evaluation: evaluation.pooled.blocks)
    header, sizes = ["", *_columns(current, shown, previous)], _block_sizes(current, *others, previous)
    columns = [evaluation for evaluation in (*shown, previous) if evaluation is not None]
    scores = [None if voided(evaluation) else evaluation.pooled for evaluation in columns]
    rows = [
        [label, *(VOID if score is None else _figure(score.streak.get(metric)) for score in scores)]
        for metric, label in LABELS.items()
    ]
    rows.append(["τ = streak + 1", *(VOID if score is None else _taus(score) for score in scores)])
    trees = [evaluation.pooled.ddtree.get(TREE_BUDGET) for evaluation in columns]
    if any(tree is not None for tree in trees):
        shown_trees = [VOID if score is None else _figure(tree) for score, tree in zip(scores, trees, strict=True)]
        rows.append([f"DDTree b={TREE_BUDGET}", *shown_trees])
    lines = ["## Result", "", *table(header, rows), ""]
    if len(sizes) > 1:
        lines += [
            f"Columns of different block sizes ({', '.join(map(str, sizes))}) are not comparable: a longer block has "
            "more to win. No Δ is taken across them.",
            "",
        ]
    lines += _intervals(current)
    lines.append(
        "A streak is the mean number of leading drafts that are right, without the bonus token. DDTree top-4 and top-8 "
        "are per-position oracles: a draft counts as right when the reference token is among the slot's 4 or 8 best, "
        f"whatever a tree could afford. DDTree b={TREE_BUDGET} is what a real tree of {TREE_BUDGET} nodes accepts"
        + ("." if any(tree is not None for tree in trees) else "; it needs ranks, which these results don't keep.")
    )
    return lines


def _columns(current: Evaluation, shown: Sequence[Evaluation], previous: Evaluation | None) -> list[str]:
    """The columns' names: which side, preset and blocks; the block size where sizes differ, the result's own name where
    two would be called the same."""
    sized = len(_block_sizes(*shown, previous)) > 1

    def column(evaluation: Evaluation, side: str, *more: str, preset: bool = True) -> str:
        size = evidence.block_size(evaluation)
        words = [_size(evaluation, preset=preset)]
        words += [f"block size {size if size is not None else 'unrecorded'}"] if sized else []
        return f"{side} ({', '.join((*words, *more))})"

    own = [evaluation is current or evidence.same_checkpoint(current, evaluation) for evaluation in shown]
    called = [
        column(evaluation, "current" if mine else plain(evaluation.name))
        for evaluation, mine in zip(shown, own, strict=True)
    ]
    names = [
        column(evaluation, "current", plain(evaluation.name)) if mine and called.count(name) > 1 else name
        for evaluation, mine, name in zip(shown, own, called, strict=True)
    ]
    return names + ([column(previous, "previous", preset=False)] if previous is not None else [])


def _block_sizes(*evaluations: Evaluation | None) -> tuple[int, ...]:
    """The different block sizes that are recorded, smallest first."""
    sizes = {evidence.block_size(evaluation) for evaluation in evaluations if evaluation is not None}
    return tuple(sorted(size for size in sizes if size is not None))


def _size(evaluation: Evaluation, *, preset: bool = True) -> str:
    blocks = f"{evaluation.pooled.blocks} blocks" if evaluation.pooled.blocks else "blocks unrecorded"
    return f"{evaluation.preset}, {blocks}" if evaluation.preset and preset else blocks


def _figure(number: float | None, digits: int = 3) -> str:
    return "" if number is None else f"{number:.{digits}f}"


def _taus(score: Score) -> str:
    return " / ".join(_figure(score.streak[metric] + 1) for metric in METRICS if metric in score.streak)


def _intervals(evaluation: Evaluation) -> list[str]:
    if voided(evaluation):
        return []
    prompts = evidence.measured_count(evaluation) or 0
    parts = []
    for metric, label in LABELS.items():
        ends = spread(evaluation, streak_of(metric))
        if ends is not None:
            parts.append(f"{label} [{', '.join(f'{end:.2f}'.replace('-', '−') for end in ends)}]")
        elif count := level(evaluation, streak_of(metric)):
            parts.append(f"{label} — (the same on all {count} prompts)")
    if not parts:
        return []
    wide = ", wide by design" if prompts < 10 else ""
    text = "; ".join(parts)
    return [f"95 % intervals of {_size(evaluation)} (Student t over {prompts} prompts like these{wide}): {text}.", ""]


def _per_prompt(current: Evaluation) -> list[str]:
    if not current.per_prompt:
        return ["## Per prompt", "", "This result keeps no per-prompt values."]
    if voided(current):
        return ["## Per prompt", "", "No value of this result can be believed: see its caveats."]
    tree = any(TREE_BUDGET in score.ddtree for score in current.per_prompt.values())
    header = ["prompt", "blocks", "top-1", "top-4", "top-8"] + ([f"DDTree b={TREE_BUDGET}"] if tree else [])
    rows = []
    for prompt, score in current.per_prompt.items():
        figures = [_figure(score.streak.get(metric), 2) for metric in METRICS]
        rows.append(
            [plain(prompt), str(score.blocks or ""), *figures]
            + ([_figure(score.ddtree.get(TREE_BUDGET), 2)] if tree else [])
        )
    return ["## Per prompt", "", *table(header, rows)]


def _compared(side: Evaluation, comparison: Comparison | None) -> list[str]:
    if comparison is None:
        return []
    lines = ["## Comparison", ""]
    reasons = plain("; ".join(comparison.why))
    if comparison.verdict == "not comparable":
        return [*lines, f"Δ n/c: {reasons}"]
    deltas = [comparison.delta[metric] for metric in METRICS]
    lines.append(f"Current is {_difference(deltas)} {_at(comparison.blocks)} (top-1 / top-4 / top-8). ")
    paired = [(row.metric, row.delta_interval) for row in comparison.rows]
    shown = [f"{metric} {bounds(ends)}" for metric, ends in paired if ends is not None]
    if shown:
        lines[-1] += f"Paired by {comparison.pairing}, 95 % intervals of Δ over prompts: {'; '.join(shown)}. "
    lines[-1] += f"Verdict: {comparison.verdict}" + (f" ({reasons})." if reasons else ".")
    return lines


def _difference(deltas: Sequence[float | None]) -> str:
    known = [delta for delta in deltas if delta is not None]
    if known and all(delta > 0 for delta in known):
        return "higher by " + " / ".join(_figure(delta) or "n/c" for delta in deltas)
    if known and all(delta < 0 for delta in known):
        return "lower by " + " / ".join(_figure(-delta) if delta is not None else "n/c" for delta in deltas)
    return "different by " + " / ".join(signed(delta) if delta is not None else "n/c" for delta in deltas)


def _at(blocks: tuple[int, int] | None) -> str:
    if blocks is None or 0 in blocks:
        return "at an unrecorded number of blocks"
    return f"at {blocks[0]} blocks each" if blocks[0] == blocks[1] else f"at {blocks[0]} against {blocks[1]} blocks"


def _caveats(
    current: Evaluation, others: Sequence[Evaluation], previous: Evaluation | None, comparison: Comparison | None
) -> list[str]:
    found: list[Finding] = [*caveats_of(current)]
    if previous is not None and comparison is not None:
        noise = (finding for finding in comparison.caveats if finding.code == "INSIDE_NOISE")
        beside = (finding for finding in caveats_of_comparison(current, previous) if finding.code != "INSIDE_NOISE")
        found += [*noise, *beside]
    found += caveats_of_others(current, others)
    lines = ["## Caveats", ""]
    for finding in merged(found):
        lines.append(f"- {GLYPHS[finding.severity]} {code(finding.code)} {plain(finding.sentence)}")
        if finding.evidence:
            lines.append(f"  Evidence: {', '.join(code(str(source)) for source in dict.fromkeys(finding.evidence))}.")
    return lines if found else [*lines, "None found."]


def _training(current: Evaluation, live_now: dict[str, Any] | None) -> list[str]:
    then = evidence.fact(current, "train.live")
    lines = ["## Training", ""]
    if current.origin == "run" and current.training is None:
        return [*lines, "A drafter of no watched training."]
    if then is not None and isinstance(then.value, dict):
        lines.append(f"- Then (plan time): {_line(then.value)} ({code(str(then.source))})")
    else:
        lines.append("- Then (plan time): unrecorded")
    lines.append(f"- Now: {_line(live_now)}" if live_now is not None else "- Now: not read")
    return lines


def _line(live: dict[str, Any]) -> str:
    step, total = evidence.whole(live.get("step")), evidence.whole(live.get("total"))
    words = [f"step {step}" + (f" of {total}" if total is not None else "") if step is not None else "step unknown"]
    if live.get("at"):
        words.append(plain(str(live["at"])))
    if live.get("line"):
        words.append(code(str(live["line"])))
    return ", ".join(words)
