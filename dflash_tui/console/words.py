"""Answers as JSON, or as text for a terminal. Whatever came from a host is shown without its control characters."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable
from typing import Any

from dflash_tui.console import answers
from dflash_tui.console.narration import megabytes
from dflash_tui.records.codec import dumps, to_data
from dflash_tui.records.finding import Finding
from dflash_tui.records.result import METRICS

GLYPHS = {"void": "⊘", "block": "✖", "warn": "▲", "note": "●"}
NAMES = {"top1": "vanilla top-1", "top4": "DDTree top-4", "top8": "DDTree top-8"}


def as_json(answer: Any, encoding: str = "utf-8") -> str:
    """Strict JSON, one document. What `encoding` can't say (a name that is no UTF-8, a terminal of another charset) is
    escaped as JSON escapes it."""
    text = dumps(answer, indent=1)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return json.dumps(to_data(answer), indent=1, allow_nan=False)
    return text


def plain(text: str) -> str:
    """Text that can't move a cursor: control and formatting characters become visible escapes; newlines stay."""
    return "".join(
        char if char == "\n" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co") else ascii(char)[1:-1]
        for char in text
    )


def as_text(answer: Any) -> str:
    """An answer for a person."""
    return plain("\n".join(_lines(answer)))


def _lines(answer: Any) -> Iterable[str]:
    match answer:
        case answers.Status():
            return _status(answer)
        case answers.Checkpoints():
            return _checkpoints(answer)
        case answers.FetchAnswer():
            state = "already there" if answer.already_there else f"{megabytes(answer.bytes)} in {answer.seconds:.1f} s"
            return [f"{answer.host}:{answer.folder}  {', '.join(answer.files)}  {state}", f"sha256 {answer.sha256}"]
        case answers.EvalAnswer():
            return [*_entry(answer.result), *_verdict(answer.comparison)]
        case answers.CaptureAnswer():
            done = ", ".join(answer.captured) or "none was missing"
            place = f"{answer.host}:{answer.folder}"
            return [
                f"captured: {done}",
                f"{len(answer.present)} of {len(answer.asked)} prompts have hidden states in {place}",
            ]
        case answers.Runs():
            return _runs(answer)
        case answers.Show():
            return [*_entry(answer.result), f"kept in {answer.path}"]
        case answers.Logs():
            return answer.lines
        case answers.ImportAnswer():
            return [f"pinned as {answer.name}: {answer.path}", *_entry(answer.result)]
        case answers.Compared():
            return _compared(answer)
        case answers.ReportAnswer():
            return [answer.markdown]
        case answers.DemoAnswer():
            return _demo(answer)
        case tuple():
            return [f"{', '.join(key.keys):12} {key.description}" for key in answer]
        case _:
            return [str(answer)]


def _status(answer: answers.Status) -> Iterable[str]:
    total = f"/{answer.total:,}" if answer.total else ""
    age = f", {ago(answer.seconds)}" if answer.seconds is not None else ""
    yield f"{answer.training} on {answer.host}: " + (
        f"step {answer.step:,}{total}{age}" if answer.step is not None else f"no step yet ({answer.phase})"
    )
    if answer.loss is not None:
        yield f"loss {answer.loss:.4f}" + (f"  lr {answer.lr:.2e}" if answer.lr is not None else "")
    if answer.throughput:
        yield f"{answer.throughput['value']:,.0f} {answer.throughput['unit']} ({answer.throughput['scope']} scope)"
    if answer.eta_seconds is not None:
        yield f"ETA {answer.eta_seconds / 3600:.1f} h"
    saved = answer.newest_saved
    if saved is not None:
        behind = f", {answer.steps_behind:,} steps behind live" if answer.steps_behind is not None else ""
        yield f"newest saved: step {saved.step}, {megabytes(saved.size)}{behind}: {saved.path}"
    else:
        yield "no complete checkpoint yet"
    if answer.last_line:
        yield f"last line: {answer.last_line}"
    for problem in answer.problems:
        yield f"{GLYPHS['warn']} {problem}"


def ago(seconds: float) -> str:
    """How long ago something was, in its largest unit."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def _checkpoints(answer: answers.Checkpoints) -> Iterable[str]:
    yield f"{answer.host}:{answer.root}"
    for item in answer.checkpoints:
        step = "?" if item.step is None else str(item.step)
        yield f"{step:>10}  {megabytes(item.size):>10}  {item.completeness:10} {item.path}  {item.reason}".rstrip()


def _entry(entry: answers.Entry) -> Iterable[str]:
    asked = f" of {entry.prompts_asked}" if entry.prompts_asked else ""
    yield f"{entry.name}: {entry.blocks} blocks, {entry.prompts}{asked} prompts"
    if entry.run_dir:
        yield f"  in {entry.run_dir}"
    for metric in METRICS:
        if metric in entry.streak:
            yield f"  {NAMES[metric]:15} {entry.streak[metric]:7.3f}   τ {entry.streak[metric] + 1:7.3f}"
    for prompt, score in entry.per_prompt.items():
        figures = "  ".join(f"{score.streak[metric]:6.2f}" for metric in METRICS if metric in score.streak)
        yield f"  {prompt:24} {score.blocks:4} blocks  {figures}"
    yield from _findings(entry.caveats)


def _findings(findings: Iterable[Finding]) -> Iterable[str]:
    for finding in findings:
        yield f"  {GLYPHS[finding.severity]} {finding.severity} {finding.code}: {finding.sentence}"


def _verdict(comparison: Any) -> Iterable[str]:
    if comparison is None:
        return
    yield f"against {comparison.previous}: {comparison.verdict}" + (
        f" ({'; '.join(comparison.why)})" if comparison.why else ""
    )
    for row in comparison.rows:
        yield f"  {NAMES.get(row.metric, row.metric):15} {_delta(row.delta)}"


def _delta(value: float | None) -> str:
    return "    n/c" if value is None else f"{value:+7.3f}"


def _compared(answer: answers.Compared) -> Iterable[str]:
    yield f"{answer.current.name} against {answer.previous.name}"
    for row in answer.rows:
        cells = "  ".join("      —" if value is None else f"{value:7.3f}" for value in (row.current, row.previous))
        yield f"  {NAMES.get(row.metric, row.metric):15} {cells}  {_delta(row.delta)}"
    yield from _between(answer.blocks, answer.current.blocks, answer.previous.blocks)
    yield f"verdict: {answer.verdict}" + (f" ({'; '.join(answer.why)})" if answer.why else "")
    yield from _findings(answer.caveats)


def _between(blocks: tuple[int, int] | None, *shown: int) -> Iterable[str]:
    """What a delta is between, where that is not the values beside it."""
    if blocks is not None and blocks != shown:
        yield f"  Δ at {blocks[0]} against {blocks[1]} blocks; the values are of {shown[0]} and {shown[1]}"


def _runs(answer: answers.Runs) -> Iterable[str]:
    for run in answer.runs:
        streak = f"{run.streak['top1']:6.3f}" if "top1" in run.streak else "      "
        yield f"{run.run_id}  {run.state:9} {streak}  {run.blocks} blocks"
    if any(run.state == "running" for run in answer.runs):
        yield "running: no end is known here; dflash-tui show RUN asks its host"
    for pin in answer.pins:
        yield f"pin {pin['name']}  {pin['sha256'][:12]}"
    for problem in answer.problems:
        yield f"{GLYPHS['warn']} {problem}"
    if not answer.runs and not answer.pins and not answer.problems:
        yield "no runs yet; dflash-tui eval makes one"


def _demo(answer: answers.DemoAnswer) -> Iterable[str]:
    yield f"{'':10} {'step':>6} {'blocks':>6}  {'top-1':>6}  {'top-4':>6}  {'top-8':>6}  {'Δ top-1':>7}  verdict"
    yield f"{'baseline':10} {'—':>6} {_figures(answer.baseline)}"
    for entry, comparison in zip(answer.checkpoints, answer.comparisons, strict=True):
        step = "—" if entry.step is None else str(entry.step)
        why = f" ({comparison.why[0]})" if comparison.why else ""
        verdict = f"{_delta(comparison.delta['top1'])}  {comparison.verdict}{why}"
        yield f"{'checkpoint':10} {step:>6} {_figures(entry)}  {verdict}"
    last = answer.checkpoints[-1] if answer.checkpoints else answer.baseline
    yield f"what to keep in mind of {'step ' + str(last.step) if last.step is not None else 'the baseline'}:"
    yield from _findings(last.caveats)


def _figures(entry: answers.Entry) -> str:
    return f"{entry.blocks:6}  " + "  ".join(f"{entry.streak[metric]:6.3f}" for metric in METRICS)
