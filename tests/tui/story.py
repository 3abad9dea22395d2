"""The acceptance story as the console would fold it: every State here comes from events, at an invented clock."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from dflash_tui.console import events as happened
from dflash_tui.console.state import State, TrainingPane, fold
from dflash_tui.records.block import BlockRecord
from dflash_tui.records.checkpoint import SavedCheckpoint
from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.process import ProgressRecord
from dflash_tui.results.caveats import caveats_of, caveats_of_others, merged
from dflash_tui.results.compare import compare
from dflash_tui.transfer.progress import Phase, TransferProgress
from dflash_tui.watch.events import CheckpointsListed, HostAnswered, MachineRead, TrainingProgressed, WatchLost
from dflash_tui.watch.fold import Fold
from dflash_tui.watch.lines import LineSplitter
from dflash_tui.watch.machine import Gpu, Machine
from tests import story as evidence

FOLDER = Path(__file__).parents[1] / "data" / "cases" / "story"
NOW = datetime(2026, 5, 21, 9, 36, 27, tzinfo=UTC).timestamp()
SIZE = 15_470_000_128
LEFT = (("optimizer", 6_922_000_000), ("frozen embed/lm_head", 5_085_593_600))
SLIM = SIZE - sum(size for _, size in LEFT)  # what an evaluation reads of it
ROUTE = ("ct200", "here", "ct129")
SHA256 = "7f3a0c1288d94e55a1f0b6a0de3c1b7745f2a9e1c6d80b93512e4fa7c09d6e21"
ASKED = tuple(json.loads((FOLDER / "hidden_states.json").read_text())["prompts_asked"])
PRESENT = ASKED[:3]
SUMS = {"fizzbuzz": (110, 205, 244), "binary_search": (102, 228, 288), "linked_list_reverse": (88, 189, 257)}
MACHINE = Machine("ct200", 94.2, None, None, (Gpu(97.0, 71_680.0, 81_559.0),) * 8, "8 GPUs · 97 %", 425_000_000_000)
EMPTY = State(training=TrainingPane(name="slammed5", host="ct200"))


def folded(events: Iterable[happened.Event], state: State = EMPTY) -> State:
    """The state after the events."""
    for event in events:
        state = fold(state, event)
    return state


@cache
def training() -> tuple[happened.Event, ...]:
    """The story's log, read to its end two seconds ago, and its saved checkpoint."""
    log = (FOLDER / "train.log").read_bytes()
    reading = Fold()
    lines = LineSplitter().feed(log)
    for line in lines:
        reading.add(line)
    reading.settle(NOW - 2)
    checkpoint = SavedCheckpoint(
        host="ct200", path="/workspace/checkpoints/step_4000/checkpoint.pt", folder="/workspace/checkpoints/step_4000",
        files=("checkpoint.pt",), step=4000, size=SIZE,
        mtime=datetime(2026, 5, 21, 9, 0, 35, tzinfo=UTC).timestamp(), inode=71, completeness="complete",
    )  # fmt: skip
    return (
        happened.Ticked(NOW - 2),
        HostAnswered("ct200", 38.2),
        happened.Ticked(NOW),
        TrainingProgressed(reading.snapshot(NOW), tuple(line.text for line in lines)),
        CheckpointsListed((checkpoint,)),
        MachineRead(MACHINE),
    )


def blocks(prompt: str, count: int = 30) -> tuple[BlockRecord, ...]:
    """Blocks whose streaks have the story's sums over 30: each sum spread as evenly as whole numbers allow."""
    made = []
    for index in range(count):
        one, four, eight = (total * (index + 1) // 30 - total * index // 30 for total in SUMS[prompt])
        ranks = [1] * one + [3] * (four - one) + [7] * (eight - four) + [30] * (15 - eight)
        tree, size = [], 0
        for rank in ranks[:eight]:
            size += 1 if rank == 1 else rank * 4
            tree.append(size)
        made.append(BlockRecord(prompt, 40 + 9 * index, 15, tuple(ranks), (-0.5,) * 15, tuple(tree)))
    return tuple(made)


def moving(written: int = SLIM * 74 // 100, job: str = "job 1", **known: Any) -> tuple[happened.Event, ...]:
    """The checkpoint on its way, without what an evaluation does not read. `known` replaces what its progress says."""
    started = happened.TransferStarted(job, 4000, "step_4000", ROUTE, SIZE)
    planned = happened.TransferPlanned(job, SLIM, SIZE, ("drafter",), LEFT)
    return (started, planned, happened.TransferAdvanced(job, replace(transfer_progress(written), **known)))


def transfer_progress(written: int, phase: Phase = "moving") -> TransferProgress:
    """A transfer's progress with a little read ahead of what is written."""
    return TransferProgress(
        phase=phase, read=min(SLIM, written + 64_000_000), written=written, total=SLIM, rate=398e6, read_rate=412e6,
        eta=(SLIM - written) / 398e6, file="checkpoint.pt", route="relay", left_out=SIZE - SLIM,
    )  # fmt: skip


def moved(job: str = "job 1") -> tuple[happened.Event, ...]:
    """The checkpoint there, verified."""
    path = "/root/eval/checkpoints/slammed5/step_4000/checkpoint.pt"
    return (*moving(SLIM, job), happened.TransferEnded(job, path=path, sha256=SHA256, seconds=8.6, bytes=SLIM))


def planned(job: str = "job 1") -> tuple[happened.Event, ...]:
    """A full evaluation, asked for and planned."""
    return (
        happened.EvaluationAsked(job, "full", "10 prompts × 30 blocks"),
        happened.PlanMade(
            job, 4000,
            (
                "checkpoint  ct200:/workspace/checkpoints/step_4000/checkpoint.pt, 15.5 GB, 61 tensors + optimizer",
                "drafter     dflash v1, 5 layers, block 16 (training used 32), taps 1 16 31 46 61",
                "target      Qwen3.6-27B at /root/models/Qwen3.6-27B, every shard there",
                "prompts     10 asked, 3 have hidden states in /root/eval/cached_hs_torchfb",
                "memory      31 GB free of 64 GB, load 0.4 on 16 cores, 15 threads at nice 10",
            ),
            ASKED, PRESENT, 30,
        ),
    )  # fmt: skip


def evaluating(last: int = 12, job: str = "job 1") -> tuple[happened.Event, ...]:
    """The evaluation in its third prompt, `last` blocks into it."""
    run_id = "slammed5-step4000-full-20260521"
    done = (*blocks("fizzbuzz"), *blocks("binary_search"), *blocks("linked_list_reverse", last))
    lines = tuple(f"{b.prompt} block {i % 30 + 1}/30 anchor {b.anchor}" for i, b in enumerate(done))
    first = ProgressRecord("2026-05-21T09:33:41Z", "drafting", 0, 90, "fizzbuzz", 0, 30)
    progress = ProgressRecord("2026-05-21T09:36:25Z", "drafting", len(done), 90, "linked_list_reverse", last, 30)
    return (
        happened.Ticked(NOW - 164),
        happened.EvaluationStarted(job, run_id, f"/root/eval/runs/{run_id}", "ct129"),
        happened.EvaluationAdvanced(job, run_id, "running", first),
        happened.EvaluationAdvanced(job, run_id, "running", progress, done, lines),
        happened.Ticked(NOW),
    )


def evaluated(job: str = "job 1") -> tuple[happened.Event, ...]:
    """The evaluation finished."""
    return (*evaluating(30, job), happened.EvaluationEnded(job, "slammed5-step4000-full-20260521", "finished"))


@cache
def results() -> happened.ResultsChanged:
    """The full result, its difference from the previous one taken at 45 blocks each, and what may be believed."""
    told = evidence.read(FOLDER)
    target = json.loads((FOLDER / "train_args.json").read_text())["target"]
    named = Fact("target.identity", {"name": target}, Source("", str(FOLDER / "train_args.json"), "target"), "")
    full = replace(told.full, facts=(*told.full.facts, named), step=4000)
    comparison = compare(told.quick, told.previous)
    own = (*caveats_of(full), *caveats_of_others(full, (told.quick,)))
    codes = {(finding.code, finding.values) for finding in own}
    pair = tuple(finding for finding in comparison.caveats if (finding.code, finding.values) not in codes)
    shown = replace(told.previous, name="previous", path=_placed(told.previous.path))
    full = replace(full, path=_placed(full.path))
    caveats = tuple(
        replace(finding, evidence=tuple(replace(source, path=_placed(source.path)) for source in finding.evidence))
        for finding in merged((*own, *pair))
    )
    return happened.ResultsChanged(full, shown, comparison, caveats, (), ("previous",))


def _placed(path: str) -> str:
    """A case file's path as it would be on the evaluation host: screens don't depend on where this checkout lies."""
    return path.replace(str(FOLDER), "/root/eval")


def finished() -> State:
    """The story's end: training live, checkpoint moved, full evaluation done, results beside the previous ones."""
    return folded((*training(), *moved(), *planned(), *evaluated(), results()))


def running() -> State:
    """In the middle: the transfer under way, an evaluation drafting."""
    return folded((*training(), *moving(), *planned(), *evaluating(), results()))


def failed() -> State:
    """Transfer and evaluation failed, the training not."""
    broken = (
        "ct129:/root/eval/checkpoints: 3.1 GB free, 15.5 GB needed; free space there or point evaluation.root elsewhere"
    )
    return folded((
        *training(), *moving(), happened.TransferEnded("job 1", error=broken), *planned(),
        happened.EvaluationEnded("job 1", "", "failed", error=broken),
    ))  # fmt: skip


def lost() -> State:
    """The training host is gone, and the evaluation with its machine."""
    return folded((
        *training(), *moved(), *planned(), *evaluating(),
        WatchLost("ct200: connection reset by peer", 8.0),
        happened.EvaluationEnded("job 1", "slammed5-step4000-full-20260521", "lost",
                                 error="ct129 was restarted while it ran: its boot id changed; e starts it again"),
        happened.Ticked(NOW + 90),
    ))  # fmt: skip


def unreachable() -> State:
    """Neither host was ever reached."""
    return folded((
        happened.Ticked(NOW), WatchLost("pve1 (pve1.example.org:22): no connection: Connection refused", 8.0),
        happened.Noticed("warn", "baseline previous: ct129: no connection: Name or service not known"),
        happened.EvaluationAsked("job 1", "quick", "newest checkpoint"),
        happened.EvaluationEnded("job 1", "", "failed", error="pve1 (pve1.example.org:22): no connection: "
                                 "Connection refused"),
    ))  # fmt: skip


def capturing() -> State:
    """The story's missing hidden states being made, an evaluation waiting for them."""
    return folded((
        *training(), *moved(), results(),
        happened.EvaluationAsked("job 2", "capture", "missing hidden states"),
        happened.PlanMade("job 2", None, ("7 of 10 prompts to capture",), ASKED[3:]),
        happened.EvaluationStarted("job 2", "capture-20260521T093627Z", "/root/eval/runs/capture-20260521T093627Z",
                                   "ct129"),
        happened.EvaluationAdvanced("job 2", "capture-20260521T093627Z", "running",
                                    ProgressRecord("", "capture", 2, 7, ASKED[5], 192, 512)),
        happened.JobQueued("job 3", "full"),
    ))  # fmt: skip
