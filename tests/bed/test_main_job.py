"""The main job where users work: over a gate, into a container, to a host of another user that the training's can't
reach. By keys alone, without a screen, and with the app or the evaluation killed in the middle."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_tui.console.state import State
from dflash_tui.results.evaluation import from_run
from dflash_tui.tui.app import DflashApp
from tests.bed.bed import Bed
from tests.bed.screen import Screen
from tests.pilot import screen_text
from tests.pilot import until as seen
from tests.workstation import FILES_OF_A_RUN, SECONDS, in_time, line_with, tree, until


@pytest.fixture
def screen(bed: Bed) -> Iterator[Screen]:
    made = Screen(bed)
    yield made
    made.close()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def the_run(bed: Bed) -> str:
    """The only run on the evaluation host."""
    (run_id,) = bed.run_dirs()
    return run_id


def assert_whole(bed: Bed, run_id: str, blocks: int) -> None:
    """The run is whole on its host and at home, all of it belongs to the other user, and nothing unfinished lies under
    a final name or beside one."""
    run_dir, home = bed.run_dir(run_id), bed.state / "runs" / run_id
    for name in FILES_OF_A_RUN:
        assert (home / name).read_bytes() == (run_dir / name).read_bytes(), name
    evaluation = from_run(home)
    assert evaluation.pooled.blocks == blocks
    keys = [(block.prompt, block.anchor) for block in evaluation.blocks]
    assert len(keys) == len(set(keys)) == blocks
    linked = run_dir / bed.manifest(run_id).checkpoint.linked
    assert linked.stat().st_nlink >= 2
    left = [path for path in bed.evaluations.rglob("*") if path.name.endswith((".part", ".tmp"))]
    assert left == []
    assert {path.stat().st_uid for path in bed.evaluations.rglob("*")} == {bed.ct129.user.uid}


def step(state: State) -> int | None:
    """The training's newest step."""
    return state.training.progress.step if state.training.progress else None


def right_column(text: str) -> str:
    """The panels on the right, without their frames."""
    return "\n".join(line.split("││")[-1].strip(" │") for line in text.splitlines() if "││" in line)


async def test_from_start_to_the_results_row_by_keys(bed: Bed) -> None:
    before = {folder: tree(folder) for folder in (bed.container, bed.lab.root)}
    with bed.at_home():
        session = bed.session()
        app = DflashApp(connect=session.connect)
        try:
            async with app.run_test(size=(120, 40)) as pilot:
                await seen(pilot, app, lambda s: s.training.newest is not None, "a saved checkpoint")
                await seen(pilot, app, lambda s: step(s) == 5329, "the log")
                newest = bed.grow_log(11)
                await seen(pilot, app, lambda s: step(s) == newest, "the log's growth")
                await pilot.press("e")
                state = await seen(pilot, app, lambda s: s.evaluation.state == "done", "the results")
                await pilot.pause(0.6)
                fetched = bed.evaluations / "checkpoints" / "slammed5" / "step_4000" / "checkpoint.pt"
                assert state.transfer.sha256 == sha256(fetched)
                assert state.transfer.left  # the optimizer stays where it is
                assert state.results.current is not None
                text = screen_text(app)
                assert "step 4000" in text
                assert f"{state.results.current.pooled.streak['top1']:.3f}" in text
                assert "0.778" in text  # the baseline's
        finally:
            await session.close()
    run_id = the_run(bed)
    assert_whole(bed, run_id, 45)
    facts = {fact.kind: fact.value for fact in bed.manifest(run_id).facts}
    assert facts["train.live"]["step"] == 5340
    after = {folder: tree(folder) for folder in before}
    changed = {name for folder in before for name in before[folder] if before[folder][name] != after[folder][name]}
    assert changed == {"data/slammed5/train.log"}  # which this test has written


def test_fetch_and_eval_alone_without_a_screen(bed: Bed) -> None:
    source = bed.container / "data" / "slammed5" / "checkpoints" / "step_4000" / "checkpoint.pt"
    fetched = bed.json("fetch")
    assert (fetched["host"], fetched["step"], fetched["already_there"]) == ("ct129", 4000, False)
    there = Path(fetched["folder"], fetched["files"][0])
    assert fetched["sha256"] == sha256(there)
    assert fetched["size"] < fetched["original"] == source.stat().st_size
    answer = bed.json("eval", "--preset", "full")
    run_id = the_run(bed)
    assert (answer["result"]["run_id"], answer["existing"]) == (run_id, False)
    assert_whole(bed, run_id, 90)
    assert (bed.run_dir(run_id) / bed.manifest(run_id).checkpoint.linked).samefile(there)
    assert bed.manifest(run_id).checkpoint.sha256 == sha256(there)
    whole = bed.json("fetch", "--full")
    assert whole["sha256"] == sha256(Path(whole["folder"], "checkpoint.pt")) == sha256(source)
    assert bed.json("eval", "--preset", "full")["existing"]
    assert bed.run_dirs() == {run_id}


def begun(bed: Bed, screen: Screen, key: str) -> str:
    """Start the app and an evaluation in it, which is held in its middle; the run."""
    bed.hold("evaluation")
    screen.start()
    screen.shows("step 5,329", "saved ◆4000")
    screen.press(key)
    bed.reached("evaluation")
    return the_run(bed)


def test_an_app_that_was_killed_finds_its_run_running_and_then_finished(bed: Bed, screen: Screen) -> None:
    run_id = begun(bed, screen, "E")
    process = bed.process(run_id)
    screen.kill()
    os.kill(process.pid, 0)  # the evaluation goes on without it
    screen.start()
    screen.shows("running · 4 × 30", "30/90")
    bed.release("evaluation")
    screen.shows("vanilla top-1", "step 4000 · full")
    until(lambda: (bed.state / "runs" / run_id / "exit.json").exists(), "the run's end at home")
    assert bed.process(the_run(bed)) == process
    assert_whole(bed, run_id, 90)


def test_a_killed_evaluation_is_shown_as_lost_with_its_last_log_line(bed: Bed, screen: Screen) -> None:
    run_id = begun(bed, screen, "e")
    headless = bed.begin("eval", "--json")
    with in_time(headless):
        line_with(headless.stderr, "is followed")
        os.kill(bed.process(run_id).pid, signal.SIGKILL)
        out, err = headless.communicate(timeout=SECONDS)
    last = (bed.run_dir(run_id) / "log.txt").read_text().strip().splitlines()[-1]
    assert (headless.returncode, out) == (1, "")
    assert f"last log line: {last}" in err.strip().splitlines()[-1]
    assert f"last log line: {last}" in " ".join(right_column(screen.shows("○ lost")).split())
    bed.release("evaluation")
    again = bed.json("eval")
    assert (again["existing"], again["result"]["run_id"] != run_id) == (False, True)
