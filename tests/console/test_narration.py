"""What a headless command says on the way."""

from __future__ import annotations

from dflash_tui.console import events as happened
from dflash_tui.console.narration import narrator
from dflash_tui.records.process import ProgressRecord
from dflash_tui.transfer.engine import Route
from dflash_tui.transfer.progress import TransferProgress

ROUTE = ("ct200", "here", "ct129")


def told(*events: happened.Event) -> list[str]:
    said: list[str] = []
    tell = narrator(said.append)
    for event in events:
        tell(event)
    return said


def moving(written: int, *, attempt: int = 1, problem: str = "") -> happened.TransferAdvanced:
    progress = TransferProgress(
        "moving", written, written, 1000, 400e6, file="checkpoint.pt", attempt=attempt, problem=problem
    )
    return happened.TransferAdvanced("job 1", progress)


def test_a_transfer_is_told_in_tenths() -> None:
    begun = happened.TransferStarted("job 1", 4000, "step_4000", ROUTE, 1000)
    assert told(begun, moving(0), moving(50), moving(120), moving(180), moving(450), moving(1000)) == [
        "moving step_4000, 1.00 kB: ct200 ▸ here ▸ ct129",
        "  0 % of all bytes · 400.00 MB/s",
        "  10 % of all bytes · 400.00 MB/s",
        "  40 % of all bytes · 400.00 MB/s",
        "  100 % of all bytes · 400.00 MB/s",
    ]


def test_what_is_there_already_is_not_said_to_move() -> None:
    events = (
        happened.TransferStarted("job 1", 4000, "step_4000", ROUTE, 1000),
        happened.TransferAdvanced("job 1", TransferProgress("planning", total=0)),
        happened.TransferAdvanced("job 1", TransferProgress("done", total=0)),
        happened.TransferEnded("job 1", path="/eval/checkpoint.pt", already_there=True),
    )
    assert told(*events) == ["already there: ct129:/eval"]


def test_a_cut_is_told_once_with_its_reason() -> None:
    begun = happened.TransferStarted("job 1", 4000, "step_4000", ROUTE, 1000)
    cut = "ct200: the connection broke"
    lines = told(begun, moving(0), moving(0, attempt=2, problem=cut), moving(10, attempt=2, problem=cut))
    assert [line for line in lines if cut in line] == [f"  attempt 2: {cut}"]


def test_what_a_transfer_waits_for_is_told_at_once_and_once() -> None:
    begun = happened.TransferStarted("job 1", 4000, "step_4000", ROUTE, 1000)
    waits = TransferProgress("planning", total=1000, waits_for="process 7 on laptop, which fills ct129:/x")
    told_twice = told(begun, *[happened.TransferAdvanced("job 1", waits)] * 2)
    assert told_twice == ["waits for process 7 on laptop, which fills ct129:/x; what that brings is not moved again"]


def test_who_stops_a_transfer_is_told_what_is_kept_and_how_to_go_on() -> None:
    ended = happened.TransferEnded("job 1", error="stopped; 67.11 MB are kept", stopped=True, kept=67_108_864)
    assert told(ended) == ["stopped; 67.11 MB are kept: the same command goes on from there"]
    assert told(happened.TransferEnded("job 1", error="stopped; nothing", stopped=True)) == ["stopped; nothing"]


def test_where_it_lies_now_is_told_with_what_it_cost() -> None:
    begun = happened.TransferStarted("job 1", 4000, "step_4000", ROUTE, 1000)
    ended = happened.TransferEnded("job 1", path="/eval/step_4000/checkpoint.pt", seconds=2.0, how="streamed")
    assert told(begun, ended) == ["moved in 2.0 s: ct129:/eval/step_4000"]


def test_a_link_on_one_host_moves_nothing_and_says_so() -> None:
    begun = happened.TransferStarted("job 1", 4000, "step_4000", ("lab", "here", "lab"), 1000)
    ended = happened.TransferEnded("job 1", path="/eval/step_4000/checkpoint.pt", how="linked")
    assert told(begun, moving(0), moving(1000), ended) == [
        "placing step_4000, 1.00 kB, on lab",
        "linked, no bytes copied: lab:/eval/step_4000",
    ]


def test_no_line_ends_in_a_space_or_counts_nothing() -> None:
    progress = [ProgressRecord("", "loading", 0, 0), ProgressRecord("", "drafting", 3, 45, "p0", 3, 15)]
    events = [happened.EvaluationAdvanced("job 1", "run", "running", item) for item in progress]
    verifying = happened.TransferAdvanced("job 1", TransferProgress("verifying", total=1000))
    assert told(verifying, *events) == ["  verifying", "  loading", "  drafting p0 3/45"]


def test_whom_a_run_waits_for_is_told_once_each() -> None:
    queued = [ProgressRecord("", "queued", 0, 0, behind=behind) for behind in ("full-1", "full-1", "quick-2")]
    events = [happened.EvaluationAdvanced("job 1", "run", "running", item) for item in queued]
    assert told(*events) == ["  queued behind full-1", "  queued behind quick-2"]


def test_a_slim_transfer_is_announced_with_what_stays() -> None:
    begun = happened.TransferStarted("job 1", 4000, "step_4000", ROUTE, 15_470_000_000)
    left = (("optimizer", 6_924_000_000), ("frozen embed/lm_head", 5_086_000_000))
    plan = happened.TransferPlanned("job 1", 3_460_000_000, 15_470_000_000, ("drafter",), left, resumable=1_000_000_000)
    assert told(begun, plan, moving(0))[:2] == [
        "  1.00 GB of it lie there from an earlier attempt, and are continued",
        "moving step_4000, 3.46 of 15.47 GB: drafter; optimizer, frozen embed/lm_head left: ct200 ▸ here ▸ ct129",
    ]


def test_why_a_transfer_is_not_slim_is_told() -> None:
    begun = happened.TransferStarted("job 1", 4000, "step_4000", ROUTE, 1000)
    plan = happened.TransferPlanned("job 1", 1000, 1000, why="moved as it is, because …")
    assert told(begun, plan, moving(0))[:2] == [
        "moved as it is, because …",
        "moving step_4000, 1.00 kB: ct200 ▸ here ▸ ct129",
    ]


def test_the_way_is_told_once_where_it_is_not_the_usual_one() -> None:
    begun = happened.TransferStarted("job 1", 4000, "step_4000", ROUTE, 1000)
    ways: list[tuple[int, Route]] = [(0, "relay"), (10, "joined"), (20, "joined"), (30, "direct")]
    events = [
        happened.TransferAdvanced("job 1", TransferProgress("moving", at, at, 1000, route=route)) for at, route in ways
    ]
    lines = [line for line in told(begun, *events) if "%" not in line]
    assert lines[1:] == ["  through this machine, by two ssh and one pipe", "  from host to host"]
