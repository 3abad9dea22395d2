"""What a headless command says on the way."""

from __future__ import annotations

from dflash_tui.console import events as happened
from dflash_tui.console.narration import narrator
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
    assert told(*events) == ["already there: /eval/checkpoint.pt"]


def test_a_cut_is_told_once_with_its_reason() -> None:
    begun = happened.TransferStarted("job 1", 4000, "step_4000", ROUTE, 1000)
    cut = "ct200: the connection broke"
    lines = told(begun, moving(0), moving(0, attempt=2, problem=cut), moving(10, attempt=2, problem=cut))
    assert [line for line in lines if cut in line] == [f"  attempt 2: {cut}"]
