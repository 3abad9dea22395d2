"""Answers as JSON, or as text for a terminal. Whatever came from a host is shown without its control characters."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any

from dflash_tui.config.writing import toml_key, toml_value
from dflash_tui.console import answers
from dflash_tui.console.quantities import ago, counted, megabytes, savings, time_left
from dflash_tui.records.codec import dumps, to_data
from dflash_tui.records.finding import Finding
from dflash_tui.records.result import METRICS
from dflash_tui.results.figures import signed

GLYPHS = {"void": "⊘", "block": "✖", "warn": "▲", "note": "●"}
NAMES = {"top1": "vanilla top-1", "top4": "DDTree top-4", "top8": "DDTree top-8"}
TREE_BUDGET = "64"
VOID = "void"  # in the place of a value that can't be believed


def as_json(answer: Any, encoding: str = "utf-8") -> str:
    """Strict JSON, one document, in which nothing moves a cursor. That, and what `encoding` can't say (a terminal of
    another charset), is escaped as JSON escapes it."""
    text = _escaped(dumps(answer, indent=1), json.dumps)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return json.dumps(to_data(answer), indent=1, allow_nan=False)
    return text


def plain(text: str) -> str:
    """Text that can't move a cursor: control and formatting characters become visible escapes; newlines stay."""
    return _escaped(text, ascii)


def _escaped(text: str, quoted: Callable[[str], str]) -> str:
    return "".join(
        char if char == "\n" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co") else quoted(char)[1:-1]
        for char in text
    )


def as_text(answer: Any, *, headed: bool = False) -> str:
    """An answer for a person. `headed`: a table says what its columns are, which a program would have to skip."""
    return plain("\n".join(line.rstrip(" ") for line in _lines(answer, headed)))


def _lines(answer: Any, headed: bool) -> Iterable[str]:
    match answer:
        case answers.Status():
            return _status(answer)
        case answers.Checkpoints():
            return _checkpoints(answer, headed)
        case answers.FetchAnswer():
            return _planned(answer) if answer.dry_run else _fetched(answer)
        case answers.EvalAnswer():
            return [*_entry(answer.result), *_verdict(answer.comparison)]
        case answers.CaptureAnswer():
            done = ", ".join(answer.captured) or "none was missing"
            place = f"{answer.host}:{answer.folder}"
            return [
                f"captured: {done}",
                f"{len(answer.present)} of {len(answer.asked)} prompts have hidden states in {place}",
            ]
        case answers.StopAnswer():
            return [f"{answer.run_id}: {answer.state}; what it has measured lies in {answer.host}:{answer.run_dir}"]
        case answers.CleanAnswer():
            return _cleaned(answer)
        case answers.PruneAnswer():
            return _pruned(answer)
        case answers.Runs():
            return _runs(answer)
        case answers.Show():
            return [*_entry(answer.result), f"kept in {answer.path}"]
        case answers.Logs():
            return answer.lines
        case answers.ImportAnswer():
            return [f"pinned as {answer.name}: {answer.path}", *_entry(answer.result)]
        case answers.UnpinAnswer():
            return [f"{answer.name} is no pin any more; what it kept stays in {answer.path}"]
        case answers.Compared():
            return _compared(answer)
        case answers.ReportAnswer():
            return [answer.markdown]
        case answers.Check():
            return _check(answer)
        case answers.TrustAnswer():
            return _trust(answer)
        case answers.DemoAnswer():
            return _demo(answer)
        case answers.ConfigPath():
            return [answer.path if answer.exists else f"{answer.path} (no such file; dflash-tui init writes it)"]
        case answers.ConfigShow():
            return _config(answer)
        case answers.InitAnswer():
            return _written(answer)
        case tuple():
            return [f"{', '.join(key.keys):12} {key.description}" for key in answer]
        case _:
            return [str(answer)]


def _status(answer: answers.Status) -> Iterable[str]:
    total = f"/{answer.total:,}" if answer.total else ""
    age = f", {ago(answer.seconds)}" if answer.seconds is not None else ""
    yield f"{answer.training} on {answer.host}: " + (
        f"step {answer.step:,}{total}{age}{_state(answer)}" if answer.step is not None else _without_step(answer)
    )
    for sentence in answer.trouble:
        yield f"{GLYPHS['block']} {sentence}"
    loss = f"loss {answer.loss:.4f}" if answer.loss is not None else ""
    lr = f"lr {answer.lr:.2e}" if answer.lr is not None else ""
    if loss or lr:
        yield "  ".join(part for part in (loss, lr) if part)
    if answer.throughput:
        yield f"{answer.throughput['value']:,.0f} {answer.throughput['unit']} ({answer.throughput['scope']} scope)"
    if answer.eta_seconds is not None:
        yield f"ETA {time_left(answer.eta_seconds)}"
    saved = answer.newest_saved
    if saved is not None:
        behind = f", {counted(answer.steps_behind, 'step')} behind live" if answer.steps_behind is not None else ""
        if saved.step is not None and answer.step is not None and saved.step > answer.step:
            behind = f", ahead of the log's step {answer.step:,}: it was begun anew since, or is written late"
        yield f"newest saved: step {saved.step}, {megabytes(saved.size)}{behind}: {saved.path}"
    else:
        yield "no complete checkpoint yet"
    if answer.last_line:
        yield f"last line: {answer.last_line}"
    for problem in answer.problems:
        yield f"{GLYPHS['warn']} {problem}"


def _state(answer: answers.Status) -> str:
    return "" if answer.state in ("live", "waiting") else f", {answer.state}"


def _without_step(answer: answers.Status) -> str:
    if answer.phase in ("waiting", "setup"):
        return f"no step yet ({answer.phase})"
    return f"{answer.phase}, the log names no steps"


ROUTES = {
    "relay": "through this machine",
    "joined": "through this machine, by two ssh and one pipe",
    "direct": "from host to host",
    "same host": "on one host, by a link where that can be",
}


def _fetched(answer: answers.FetchAnswer) -> Iterable[str]:
    yield f"{answer.host}:{answer.folder}  {', '.join(answer.files)}  {_moved(answer)}"
    yield from _saved(answer)
    yield f"sha256 {answer.sha256}"


def _moved(answer: answers.FetchAnswer) -> str:
    if answer.already_there:
        return "already there"
    return f"{megabytes(answer.bytes)} in {answer.seconds:.1f} s" if answer.bytes else "placed, nothing crossed a wire"


def _saved(answer: answers.FetchAnswer) -> Iterable[str]:
    left = [(item.what, item.bytes) for item in answer.left]
    if left:
        yield savings(answer.size, answer.original, answer.kept, left)
    if answer.why:
        yield f"{GLYPHS['warn']} {answer.why}"


def _planned(answer: answers.FetchAnswer) -> Iterable[str]:
    yield f"{answer.source} to {answer.host}:{answer.folder}"
    left = [(item.what, item.bytes) for item in answer.left]
    yield savings(answer.size, answer.original, answer.kept, left)
    for item in answer.left:
        yield f"  left  {megabytes(item.bytes):>10}  {item.what}"
    if answer.why:
        yield f"{GLYPHS['warn']} {answer.why}"
    yield f"files  {', '.join(answer.files)}"
    yield f"route  {ROUTES.get(answer.route, answer.route)}"
    if answer.already_there:
        yield "there  all of it, with the same bytes: nothing would move"
    elif answer.present or answer.resumed:
        yield f"there  {megabytes(answer.present)}, and {megabytes(answer.resumed)} to be continued"
    yield f"moves  {megabytes(answer.bytes)}"
    inodes = "" if answer.free_inodes is None else f", {answer.free_inodes:,} inodes"
    yield f"free   {megabytes(answer.free_bytes)}{inodes} on {answer.host}"


def _checkpoints(answer: answers.Checkpoints, headed: bool) -> Iterable[str]:
    yield f"{answer.host}:{answer.root}"
    if headed and answer.checkpoints:
        yield f"{'step':>10}  {'saved':>10}  {'size':>10}  {'an evaluation':17}  {'state':10} {'content':25}  path"
    for item in answer.checkpoints:
        step = "?" if item.step is None else str(item.step)
        age = "" if item.age is None else ago(max(0.0, item.age))
        weights = "" if item.weights_size is None else f"weights {megabytes(item.weights_size)}"
        cells = f"{step:>10}  {age:>10}  {megabytes(item.size):>10}  {weights:17}  {item.completeness:10}"
        why = "; ".join(text for text in (item.reason, item.weights_problem) if text)
        yield f"{cells} {_hash(item):25}  {item.path}  {why}"


def _hash(item: answers.ListedCheckpoint) -> str:
    """The beginning of what tells this content, and of what kind that is."""
    if item.sha256:
        return f"sha256 {item.sha256[:12]}"
    if item.quick_id:
        kind, _, digits = item.quick_id.partition("-")
        return f"{kind} {digits[:12]}"
    return ""


def _entry(entry: answers.Entry) -> Iterable[str]:
    yield f"{entry.name}: {counted(entry.blocks, 'block')}, {_prompts(entry)}"
    if entry.run_dir:
        yield f"  in {entry.run_dir}"
    for metric in METRICS:
        if entry.tau is None:
            yield f"  {NAMES[metric]:15} {VOID:>7}"
        elif metric in entry.streak:
            yield _value(NAMES[metric], entry.streak[metric])
    if TREE_BUDGET in entry.ddtree:
        yield _value(f"DDTree b={TREE_BUDGET}", entry.ddtree[TREE_BUDGET])
    for prompt, score in entry.per_prompt.items():
        figures = "  ".join(f"{score.streak[metric]:6.2f}" for metric in METRICS if metric in score.streak)
        yield f"  {prompt:24} {score.blocks:4} {'block ' if score.blocks == 1 else 'blocks'}  {figures}"
    yield from _findings(entry.caveats)


def _value(name: str, streak: float) -> str:
    return f"  {name:15} {streak:7.3f}   τ {streak + 1:7.3f}"


def _prompts(entry: answers.Entry) -> str:
    if entry.prompts is None:
        return "prompts unrecorded"
    if not entry.prompts_asked:
        return counted(entry.prompts, "prompt")
    return f"{entry.prompts} of {counted(entry.prompts_asked, 'prompt')}"


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
    return f"{'n/c' if value is None else signed(value):>7}"


def _compared(answer: answers.Compared) -> Iterable[str]:
    yield f"{answer.current.name} against {answer.previous.name}"
    for row in answer.rows:
        sides = ((row.current, answer.current), (row.previous, answer.previous))
        cells = "  ".join(_cell(value, side) for value, side in sides)
        yield f"  {NAMES.get(row.metric, row.metric):15} {cells}  {_delta(row.delta)}"
    yield from _between(answer.blocks, answer.current.blocks, answer.previous.blocks)
    yield f"verdict: {answer.verdict}" + (f" ({'; '.join(answer.why)})" if answer.why else "")
    yield from _findings(answer.caveats)


def _cell(value: float | None, of: answers.Entry) -> str:
    return f"{VOID if of.tau is None else '—':>7}" if value is None else f"{value:7.3f}"


def _between(blocks: tuple[int, int] | None, *shown: int) -> Iterable[str]:
    """What a delta is between, where that is not the values beside it."""
    if blocks is not None and blocks != shown:
        yield f"  Δ at {blocks[0]} against {blocks[1]} blocks; the values are of {shown[0]} and {shown[1]}"


def _cleaned(answer: answers.CleanAnswer) -> Iterable[str]:
    for item in answer.found:
        freed = f", {megabytes(item.bytes)}" if item.bytes else ""
        yield f"{item.path}  {item.kind}{freed}: {item.reason}"
    for stays in answer.kept:
        yield f"{stays.path}  stays: {stays.reason}"
    what = "would go" if answer.dry_run else "gone"
    yield f"{counted(len(answer.found), 'leftover')} {what} from {answer.host}:{answer.root}, {megabytes(answer.bytes)}"


def _pruned(answer: answers.PruneAnswer) -> Iterable[str]:
    for item in answer.found:
        yield f"{item.path}  {item.kind}, {megabytes(item.bytes)}: {item.reason}"
    for stays in answer.kept:
        yield f"{stays.path}  stays: {stays.reason}"
    what = "would go" if answer.dry_run else "gone"
    yield f"{counted(len(answer.found), 'thing')} {what} from {answer.host}:{answer.root}, {megabytes(answer.bytes)}"
    if answer.dry_run and answer.found:
        yield f"nothing was removed; this removes them: {answer.repeat}"


def _runs(answer: answers.Runs) -> Iterable[str]:
    widest = max((len(plain(run.run_id)) for run in answer.runs), default=0)
    digits = max((len(f"{run.blocks:,}") for run in answer.runs), default=0)
    for run in answer.runs:
        value = f"{VOID:>6}" if run.void else f"{run.streak['top1']:6.3f}" if "top1" in run.streak else ""
        streak = f"top-1 {value}" if value else " " * 12
        noun = "block " if run.blocks == 1 else "blocks"
        mark = f"  {GLYPHS['void']} {', '.join(run.void)}" if run.void else ""
        yield f"{plain(run.run_id):{widest}}  {run.state:8}  {streak}  {run.blocks:{digits},} {noun}{mark}"
    if any(run.state == "running" for run in answer.runs):
        yield "running: no end is known here; dflash-tui show RUN asks its host"
    for pin in answer.pins:
        yield f"pin {pin['name']}  {pin['sha256'][:12]}"
    for problem in answer.problems:
        yield f"{GLYPHS['warn']} {problem}"
    if not answer.runs and not answer.pins and not answer.problems:
        yield "no runs yet; dflash-tui eval makes one"


def _config(answer: answers.ConfigShow) -> Iterable[str]:
    yield f"# {answer.path}"
    for name, table in answer.config.items():
        parts: list[tuple[str, str, dict[str, Any]]] = [(f"[{name}]", name, table)]
        if name == "hosts":
            parts = [(f"[hosts.{toml_key(host)}]", f"hosts.{host}", item) for host, item in table.items()]
        elif name == "baseline":
            parts = [("[[baseline]]", f"baseline.{item['name']}", item) for item in table]
        for heading, dotted, values in parts:
            yield ""
            yield heading
            for key, value in values.items():
                mark = "  # default" if f"{dotted}.{key}" in answer.defaults else ""
                yield f"{key} = {toml_value(value)}{mark}"


def _written(answer: answers.InitAnswer) -> Iterable[str]:
    yield f"wrote {answer.path}"
    if answer.kept:
        yield f"the one that was there is now {answer.kept}"
    yield "next: " + ", then: ".join(answer.next)


MARKS = {"ok": "✓", "warn": GLYPHS["warn"], "fail": GLYPHS["block"], "not tried": "·"}


def _check(answer: answers.Check) -> Iterable[str]:
    group = ""
    for item in answer.items:
        if item.group != group:
            yield from (("",) if group else ())
            group = item.group
            yield group
        yield f"  {MARKS[item.state]} {item.name}: {item.sentence}"
    yield ""
    failed = f"{counted(answer.failed, 'thing')} failed" if answer.failed else "nothing failed"
    yield f"{failed}, {counted(answer.warned, 'warning')}, {answer.seconds:.1f} s"


def _trust(answer: answers.TrustAnswer) -> Iterable[str]:
    for key in answer.added:
        yield f"{key.host}: {key.key_type} {key.fingerprint} added to {key.file} as {key.entry}"
    if not answer.added:
        yield f"{answer.host}: every key on the way is known already"
    if answer.problem:
        yield f"{GLYPHS['warn']} {answer.problem}"


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
    return f"{entry.blocks:6}  " + "  ".join(
        f"{VOID:>6}" if entry.tau is None else f"{entry.streak[metric]:6.3f}" for metric in METRICS
    )
