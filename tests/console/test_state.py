from __future__ import annotations

from dflash_tui.console import events as happened
from dflash_tui.console.state import LOG_LINES, State, TrainingPane, fold
from dflash_tui.records.block import BlockRecord
from dflash_tui.records.checkpoint import Completeness, SavedCheckpoint
from dflash_tui.transfer.progress import TransferProgress
from dflash_tui.watch.events import CheckpointsListed, HostAnswered, TrainingProgressed, WatchLost, WatchRestored
from dflash_tui.watch.progress import Progress


def checkpoint(step: int, completeness: Completeness = "complete") -> SavedCheckpoint:
    return SavedCheckpoint("ct200", f"/c/step_{step}/m.pt", f"/c/step_{step}", ("m.pt",), step, 1, 0.0, 1, completeness)


def after(*events: happened.Event) -> State:
    state = State(training=TrainingPane(name="slammed5", host="ct200"), now=100.0)
    for event in events:
        state = fold(state, event)
    return state


def test_the_newest_saved_checkpoint_is_the_newest_complete_one() -> None:
    listed = CheckpointsListed((checkpoint(2000), checkpoint(4000), checkpoint(6000, "saving")))
    state = after(listed, TrainingProgressed(Progress(at=0.0, step=5329), ("line",)))
    assert state.training.newest == checkpoint(4000)
    assert state.training.saving == checkpoint(6000, "saving")
    assert state.training.steps_behind == 1329


def test_a_lost_link_keeps_what_was_seen_and_says_why() -> None:
    state = after(HostAnswered("ct200", 38.0), WatchLost("no route to pve1", 8.0))
    line = state.hosts["ct200"]
    assert (line.link, line.reason, line.retry_at, line.answered_at) == ("lost", "no route to pve1", 108.0, 100.0)
    assert fold(state, WatchRestored()).hosts["ct200"].link == "live"


def test_events_of_an_older_job_never_change_a_newer_job_s_pane() -> None:
    state = after(
        happened.EvaluationAsked("job 1", "quick", "newest"),
        happened.EvaluationAsked("job 2", "full", "newest"),
        happened.EvaluationStarted("job 1", "old", "/runs/old", "lab"),
        happened.TransferStarted("job 2", 4000, "step_4000", ("a", "here", "b"), 10),
        happened.TransferPlanned("job 2", 4, 10, ("drafter",), (("optimizer", 6),)),
        happened.TransferPlanned("job 1", 99, 99, why="no"),
        happened.TransferAdvanced("job 1", TransferProgress(phase="moving", total=99)),
    )
    assert (state.transfer.total, state.transfer.original, state.transfer.why) == (4, 10, "")
    assert state.transfer.left == (("optimizer", 6),)
    assert state.evaluation.run_id == ""
    assert state.evaluation.preset == "full"
    assert state.transfer.progress is None


def test_what_waits_or_has_ended_never_hides_a_transfer_that_runs() -> None:
    route = ("ct200", "here", "ct129")
    first = (
        happened.TransferStarted("job 1", 4000, "step_4000", route, 10),
        happened.TransferPlanned("job 1", 4, 10),
    )
    state = after(*first, happened.TransferStarted("job 2", 4200, "step_4200", route, 10))
    assert (state.transfer.job, [pane.job for pane in state.beside]) == ("job 1", ["job 2"])
    state = fold(state, happened.TransferPlanned("job 2", 4, 10))
    assert (state.transfer.job, [pane.job for pane in state.beside]) == ("job 2", ["job 1"])
    state = fold(state, happened.TransferAdvanced("job 1", TransferProgress("moving", 2, 2, 4)))
    assert state.transfer.job == "job 2"
    state = fold(state, happened.TransferEnded("job 2", error="stopped", stopped=True))
    assert (state.transfer.job, state.transfer.state, state.beside) == ("job 1", "running", ())
    assert state.transfer.progress is not None
    state = fold(state, happened.TransferEnded("job 1", path="/x"))
    assert (state.transfer.job, state.transfer.state, state.transfers) == ("job 1", "done", ())
    assert fold(state, happened.TransferEnded("job 2", path="/x")) == state


def test_running_streaks_come_from_the_blocks_that_came_home() -> None:
    block = BlockRecord("fizzbuzz", 10, 2, (1, 2), (0.0, 0.0), (1,))
    state = after(
        happened.EvaluationAsked("job 1", "quick", "newest"),
        happened.PlanMade("job 1", 4000, ("plan",), ("fizzbuzz", "graph_bfs"), ("fizzbuzz",), 15),
        happened.EvaluationStarted("job 1", "run", "/runs/run", "lab"),
        happened.EvaluationAdvanced("job 1", "run", "running", None, (block,), ("a line",)),
        happened.EvaluationAdvanced("job 1", "run", "running", None, (block,), ()),
    )
    first, second = state.evaluation.prompts
    assert (first.done, first.total, first.present) == (2, 15, True)
    assert first.score is not None
    assert first.score.streak["top1"] == 1.0
    assert (second.present, second.score) == (False, None)
    assert state.evaluation.log == ("a line",)


def test_a_lost_run_is_not_called_failed() -> None:
    asked = happened.EvaluationAsked("job 1", "quick", "newest")
    assert after(asked, happened.EvaluationEnded("job 1", "r", "lost", "gone")).evaluation.state == "lost"
    assert after(asked, happened.EvaluationEnded("job 1", "r", "failed", "no")).evaluation.state == "failed"
    assert after(asked, happened.EvaluationEnded("job 1", "r", "finished")).evaluation.state == "done"


def test_a_long_log_keeps_its_end() -> None:
    many = tuple(f"line {number}" for number in range(3 * LOG_LINES))
    state = after(TrainingProgressed(Progress(at=0.0), many))
    assert len(state.training.log) == LOG_LINES
    assert state.training.log[-1] == many[-1]


def test_before_the_checkpoints_were_listed_nobody_says_that_there_is_none() -> None:
    assert not after(CheckpointsListed((), "ct200: no link")).training.listed
    state = after(CheckpointsListed(()))
    assert state.training.listed
    assert fold(state, CheckpointsListed((), "ct200: no link")).training.listed


def test_a_waiting_job_leaves_the_queue_when_it_begins_or_ends() -> None:
    state = after(happened.JobQueued("job 2", "full"), happened.JobQueued("job 3", "quick"))
    state = fold(state, happened.EvaluationAsked("job 2", "full", "newest"))
    assert [waiting.preset for waiting in state.queue] == ["quick"]
    state = fold(state, happened.EvaluationEnded("job 3", "", "stopped"))
    assert state.queue == ()
    assert state.evaluation.state == "planning"


def test_a_capture_tells_the_captured_prompts_from_those_left_out() -> None:
    state = after(
        happened.EvaluationAsked("job 1", "capture", "missing hidden states"),
        happened.PlanMade("job 1", None, (), ("fizzbuzz", "graph_bfs")),
        happened.CaptureEnded("job 1", ("graph_bfs",)),
    )
    assert [(prompt.id, prompt.present) for prompt in state.evaluation.prompts] == [
        ("fizzbuzz", False),
        ("graph_bfs", True),
    ]
