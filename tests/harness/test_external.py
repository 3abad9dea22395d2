"""A script of the user's own: run, read, and kept from what was there before."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_tui.harness import rundir
from dflash_tui.records.codec import loads
from dflash_tui.records.process import ProgressRecord
from tests.harness.external_world import OLD, OLD_NS, Lab, ending, journal, lab, log, process_of, until
from tests.harness.world import harness


@pytest.fixture
def there(tmp_path: Path) -> Lab:
    return lab(tmp_path)


def progress(run_dir: Path) -> list[ProgressRecord]:
    return [loads(ProgressRecord, line, "progress") for line in rundir.lines(run_dir / rundir.PROGRESS)]


def test_what_the_script_writes_at_its_fixed_path_becomes_the_runs_and_the_old_file_is_back(there: Lab) -> None:
    inode = there.fixed.stat().st_ino
    run_dir = there.run("write:")
    assert ending(run_dir).state == "finished"
    (output,) = journal(run_dir).outputs
    assert output.origin == os.fspath(there.fixed)
    assert json.loads((run_dir / output.name).read_text())["total_blocks"] == 45
    assert there.is_as_before()
    assert there.fixed.stat().st_ino == inode  # the file itself, not another with its bytes
    assert f"{there.fixed}: what the script wrote there lies in {run_dir / output.name}" in log(run_dir)
    assert f"{there.fixed}: is as it was before, sha256 " in log(run_dir)


@pytest.mark.parametrize("word", ["write:", "append:", "replace:", "drop:", "folder:", "touch:", "half:"])
def test_whatever_is_done_to_the_old_file_it_is_back(there: Lab, word: str) -> None:
    run_dir = there.run(word, "write:fresh.json", results=("fresh.json",))
    assert ending(run_dir).state == "finished"
    assert there.is_as_before()


def test_a_script_that_obeys_writes_in_its_run_and_touches_nothing_else(there: Lab) -> None:
    run_dir = there.run("write:results.json", results=("results.json",))
    (output,) = journal(run_dir).outputs
    assert (output.name, output.origin) == ("work/results.json", os.fspath(run_dir / "work" / "results.json"))
    assert there.is_as_before()


def test_a_script_that_ignores_where_it_is_told_to_write_destroys_nothing_and_fails(there: Lab) -> None:
    run_dir = there.run("write:", results=("results.json",))
    error = ending(run_dir).error or ""
    assert ending(run_dir).state == "failed"
    assert f"looked for {run_dir}/work/results.json; it wrote {there.fixed}" in error
    assert there.is_as_before()
    assert (run_dir / "written" / "0-eval_results.json").exists()


def test_a_path_that_was_absent_is_absent_again(there: Lab, tmp_path: Path) -> None:
    new = tmp_path / "not" / "yet" / "out.json"
    new.parent.parent.mkdir()
    new.parent.mkdir()
    gone = there.folder / "fresh.json"
    run_dir = there.run(f"write:{new}", f"write:{gone}", results=(os.fspath(new), os.fspath(gone)))
    assert [output.origin for output in journal(run_dir).outputs] == [os.fspath(new), os.fspath(gone)]
    assert not new.exists()
    assert there.is_as_before()


def test_a_folder_that_the_script_had_to_make_is_gone_again(there: Lab, tmp_path: Path) -> None:
    new = tmp_path / "not" / "yet" / "out.json"
    make = f"import os,sys; os.makedirs({os.fspath(new.parent)!r}); open({os.fspath(new)!r}, 'w').write('{{}}')"
    (there.folder / "make.py").write_text(make)
    run_dir = there.run("write:", results=(os.fspath(new),), command=("python3", os.fspath(there.folder / "make.py")),
                        script="")  # fmt: skip
    assert ending(run_dir).state == "finished", log(run_dir)
    assert not (tmp_path / "not").exists()


def test_a_symbolic_link_and_what_it_leads_to_are_both_back(there: Lab, tmp_path: Path) -> None:
    behind = tmp_path / "behind.json"
    there.fixed.rename(behind)
    there.fixed.symlink_to(behind)
    for number, word in enumerate(("write:", "replace:", "drop:")):
        run_dir = there.run(word, "write:fresh.json", name=f"run-{number}", results=("fresh.json",))
        assert ending(run_dir).state == "finished"
        assert there.fixed.readlink() == behind
        assert behind.read_bytes() == OLD
        assert there.is_as_before()


def test_the_other_names_of_a_hard_linked_result_are_not_written_to(there: Lab, tmp_path: Path) -> None:
    other = tmp_path / "archive.json"
    os.link(there.fixed, other)
    run_dir = there.run("append:", "write:fresh.json", results=("fresh.json",))
    assert ending(run_dir).state == "finished"
    assert other.read_bytes() == OLD
    assert other.samefile(there.fixed)


def test_what_others_write_to_a_file_that_they_have_open_stays(there: Lab) -> None:
    notes = there.folder / "notes.txt"
    notes.write_text("one\n")
    gate = there.folder / "gate"
    os.mkfifo(gate)
    with notes.open("a") as other:
        run_dir = there.make(there.request(f"wait:{gate}", "write:"))
        running = there.begin(run_dir)
        until(lambda: "the script begins" in (log(run_dir) if (run_dir / "log.txt").exists() else ""), "the start")
        other.write("two\n")
        other.flush()
        gate.write_text("")
        running.wait(60)
    assert notes.read_text() == "one\ntwo\n"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("end:3", "run_eval.py ended with status 3: no space left"),
        ("kill", "run_eval.py was ended by SIGKILL (is memory short?): no space left"),
    ],
)
def test_a_script_that_fails_half_way_says_its_last_line_and_the_old_file_is_back(
    there: Lab, word: str, said: str
) -> None:
    run_dir = there.run("half:", "say:loading", "err:no space left", "bar:1/45", "say:bye", word)
    assert ending(run_dir).state == "failed"
    assert said in (ending(run_dir).error or "")
    assert there.is_as_before()
    assert (run_dir / "written" / "0-eval_results.json").exists()


def test_a_half_written_result_is_named(there: Lab) -> None:
    run_dir = there.run("half:")
    assert ending(run_dir).state == "failed"
    assert f"{there.fixed}: is no whole JSON" in (ending(run_dir).error or "")
    assert there.is_as_before()


def test_without_a_result_it_says_where_it_looked(there: Lab) -> None:
    run_dir = there.run("say:done")
    assert f"wrote no results; looked in {run_dir}/work" in (ending(run_dir).error or "")


def test_a_program_that_is_not_there_is_named(there: Lab) -> None:
    run_dir = there.run(command=("/no/such/python", "x"), script="")
    assert "/no/such/python: can't be run (No such file or directory)" in (ending(run_dir).error or "")
    assert there.is_as_before()


def test_bars_become_progress_and_lines_become_the_log(there: Lab) -> None:
    gate = there.folder / "gate"
    os.mkfifo(gate)
    run_dir = there.make(there.request("say:first line", "bar:1/45", "bar:7/45", f"wait:{gate}", "bar:45/45", "write:"))
    running = there.begin(run_dir)
    until(lambda: (run_dir / "progress.jsonl").exists() and any(p.done == 7 for p in progress(run_dir)), "the bar")
    assert "first line\n" in log(run_dir)
    gate.write_text("")
    assert running.wait(60) == 0
    found = progress(run_dir)
    assert {(each.phase, each.total) for each in found} == {("script", 45), ("done", 45)}
    assert [each.done for each in found][-1] == 45
    assert sum("%|" in line for line in log(run_dir).splitlines()) <= 1


def test_progress_is_read_by_the_users_own_pattern(there: Lab) -> None:
    run_dir = there.run("say:block 9 of 45", "write:", progress=r"block (?P<done>\d+) of (?P<total>\d+)")
    assert (9, 45) in {(each.done, each.total) for each in progress(run_dir)}
    assert "block 9 of 45\n" in log(run_dir)


def test_what_the_script_leaves_behind_is_ended_before_the_old_file_comes_back(there: Lab, tmp_path: Path) -> None:
    gate, late = tmp_path / "gate", tmp_path / "late"
    os.mkfifo(gate)
    run_dir = there.run("write:", f"child:{gate}:{there.fixed}:{late}")
    assert ending(run_dir).state == "finished"
    assert "what the script had left behind was ended: 1 process\n" in log(run_dir)
    with pytest.raises(OSError, match="No such device"):  # nobody reads it any more
        os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
    assert there.is_as_before()


def test_a_daemon_that_took_off_its_mark_is_ended_too_and_does_not_hold_the_run_up(there: Lab) -> None:
    loud = "while :; do echo still here; echo late > eval_results.json; done"
    start = f"import subprocess; subprocess.Popen(['env', '-i', 'sh', '-c', {loud!r}], start_new_session=True)"
    (there.folder / "start.py").write_text(f"{start}\nopen('eval_results.json', 'w').write('{{}}')\n")
    command = ("env", "-C", os.fspath(there.folder), sys.executable, os.fspath(there.folder / "start.py"))
    run_dir = there.run(command=command, script="")
    (there.folder / "start.py").unlink()
    assert "what the script had left behind was ended: 1 process" in log(run_dir)
    assert there.is_as_before()


def test_what_the_script_leaves_to_its_harness_is_reaped(there: Lab) -> None:
    gate, here = there.folder / "gate", there.folder / "here"
    os.mkfifo(gate)
    command = ("sh", "-c", f"for i in 1 2 3 4 5 6 7 8; do (true &); done; : > {here}; cat {gate}")
    working = there.begin(there.make(there.request(command=command, script="")))
    until(here.exists, "the script to leave them")
    until(lambda: children(working.pid) == 1, "the script to be the only child")
    gate.write_text("")
    working.wait()


def children(pid: int) -> int:
    """How many a process has, living or not."""
    return sum(len(task.read_text().split()) for task in Path(f"/proc/{pid}/task").glob("*/children"))


def test_what_the_script_wrote_is_moved_so_that_a_full_disk_keeps_no_old_file_away(there: Lab) -> None:
    gate = there.folder / "gate"
    os.mkfifo(gate)
    run_dir = there.make(there.request("replace:", f"here:{there.folder / 'here'}", f"wait:{gate}"))
    working = there.begin(run_dir)
    until((there.folder / "here").exists, "the script to write")
    new = there.fixed.stat().st_ino
    gate.write_text("")
    working.wait()
    (output,) = journal(run_dir).outputs
    assert (run_dir / output.name).stat().st_ino == new
    assert there.is_as_before()


def test_a_held_run_whose_folder_is_gone_ends_when_it_is_let_go(there: Lab) -> None:
    gate = there.folder / "gate"
    os.mkfifo(gate)
    run_dir = there.make(there.request(f"here:{there.folder / 'here'}", f"wait:{gate}"))
    holding = there.begin(run_dir, "--attached", stdin=subprocess.PIPE)
    until((there.folder / "here").exists, "the script to begin")
    shutil.rmtree(run_dir)
    holding.communicate(timeout=30)
    assert holding.returncode


def test_stop_ends_the_script_and_puts_the_old_file_back(there: Lab) -> None:
    gate, here = there.folder / "gate", there.folder / "here"
    os.mkfifo(gate)
    run_dir = there.make(there.request("half:", f"here:{here}", f"wait:{gate}"))
    assert harness("external", run_dir).returncode == 0
    until(here.exists, "the script")
    assert harness("state", run_dir).stdout == "running\n"
    assert harness("stop", run_dir).stdout == "stopping\n"
    until((run_dir / rundir.EXIT).exists, "the end")
    assert ending(run_dir).state == "stopped"
    assert there.is_as_before()


def test_a_checkpoint_that_the_script_writes_into_is_said(there: Lab) -> None:
    link = there.root / "runs" / "run-1" / "checkpoint" / "checkpoint.pt"
    run_dir = there.run(f"spoil:{link}", "write:")
    assert "LINKED_FILE_CHANGED" in log(run_dir)
    facts = [json.loads(line) for line in (run_dir / rundir.FACTS).read_text().splitlines()]
    before, after = (fact["value"]["checkpoint/checkpoint.pt"] for fact in facts)
    assert before["inode"] == after["inode"]
    assert before["header_sha256"] != after["header_sha256"]


def test_a_link_that_the_script_removes_or_replaces_is_not_the_one_that_was_fetched(there: Lab) -> None:
    gone = there.run("drop:../checkpoint/checkpoint.pt", "write:fresh.json")
    other = there.run("replace:../checkpoint/checkpoint.pt", "write:fresh.json", name="run-2")
    for run_dir, what in ((gone, "removed"), (other, "put another file at")):
        assert f"the script {what} {run_dir}/checkpoint/checkpoint.pt" in log(run_dir)
        assert "the one that was fetched is as it was" in log(run_dir)
    assert (there.root / "checkpoints" / "checkpoint.pt").read_bytes() == b"weights" * 1000


def test_what_is_written_beside_the_checkpoint_changes_no_checkpoint(there: Lab) -> None:
    beside = there.root / "runs" / "run-1" / "checkpoint" / "notes.json"
    run_dir = there.run(f"write:{beside}", "write:")
    assert ending(run_dir).state == "finished"
    assert "LINKED_FILE_CHANGED" not in log(run_dir)


def test_a_declared_folder_is_refused(there: Lab) -> None:
    run_dir = there.run("write:", results=(os.fspath(there.folder),))
    assert "is a folder, expected a file; name the file in it under harness.results" in (ending(run_dir).error or "")


def test_a_script_that_changed_since_the_plan_is_not_run(there: Lab) -> None:
    run_dir = there.run("write:", script_sha256="0" * 64)
    assert "has changed since this run was planned" in (ending(run_dir).error or "")
    assert not (run_dir / "work").exists()


def test_files_beyond_the_bound_are_named_and_watched(there: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    big = there.folder / "states.npz"
    with big.open("wb") as stream:
        stream.truncate(300 << 20)
    run_dir = there.run(f"touch:{big}", "write:")
    assert f"{big}: is not kept safe" in log(run_dir)
    assert f"{big}: WAS CHANGED by the script" in log(run_dir)
    big.unlink()
    assert there.is_as_before()


def test_two_at_once_take_turns_and_neither_sees_the_others_result(there: Lab) -> None:
    gate, here = there.folder / "gate", there.folder / "here"
    os.mkfifo(gate)
    first = there.make(there.request("write:", f"here:{here}", f"wait:{gate}"), "run-1")
    second = there.make(there.request("append:", "write:fresh.json", results=("fresh.json",)), "run-2")
    one = there.begin(first)
    until(here.exists, "the first")
    two = there.begin(second)
    until(lambda: (second / "log.txt").exists() and "queued behind run-1" in log(second), "the queue")
    gate.write_text("")
    assert (one.wait(60), two.wait(60)) == (0, 0)
    assert (second / "written" / "0-eval_results.json").read_bytes() == OLD + b"more\n"
    assert there.is_as_before()


def test_the_script_is_not_left_alone_when_its_harness_is_killed(there: Lab) -> None:
    gate, here = there.folder / "gate", there.folder / "here"
    os.mkfifo(gate)
    run_dir = there.make(there.request("half:", f"here:{here}", f"wait:{gate}", "write:"))
    running = there.begin(run_dir)
    until(here.exists, "the script")
    child = journal(run_dir).child
    assert child is not None
    os.kill(process_of(run_dir).pid, signal.SIGKILL)
    running.wait(60)
    until(lambda: not Path(f"/proc/{child.pid}/environ").exists() or not _alive(child.pid), "the script's end")


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_run_below_another_root_waits_for_the_files_that_one_guards(there: Lab, tmp_path: Path) -> None:
    gate, here = there.folder / "gate", there.folder / "here"
    os.mkfifo(gate)
    (tmp_path / "second").mkdir()
    beside = replace(lab(tmp_path / "second"), folder=there.folder)
    first = there.make(there.request("write:", f"here:{here}", f"wait:{gate}"))
    second = beside.make(beside.request("append:", "write:fresh.json", results=("fresh.json",)))
    one = there.begin(first)
    until(here.exists, "the first")
    two = beside.begin(second)
    until(lambda: (second / "log.txt").exists() and "it is waited for" in log(second), "the other root")
    assert not (second / "kept").exists()
    gate.write_text("")
    assert (one.wait(60), two.wait(60)) == (0, 0)
    assert (second / "written" / "0-eval_results.json").read_bytes() == OLD + b"more\n"
    assert there.is_as_before()


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder on another file system than the runs'."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("word", ["write:", "append:", "replace:", "drop:", "touch:"])
def test_on_another_file_system_the_bytes_come_back_with_time_and_mode(there: Lab, elsewhere: Path, word: str) -> None:
    assert elsewhere.stat().st_dev != there.root.stat().st_dev
    far = elsewhere / "far.json"
    far.write_bytes(OLD)
    far.chmod(0o640)
    os.utime(far, ns=(OLD_NS, OLD_NS))
    run_dir = there.run(f"{word}{far}", "write:fresh.json", results=("fresh.json", os.fspath(far)))
    found = far.stat()
    assert (far.read_bytes(), found.st_mtime_ns, found.st_mode & 0o777) == (OLD, OLD_NS, 0o640), log(run_dir)
    assert list(elsewhere.iterdir()) == [far]


def test_on_another_file_system_a_hard_linked_file_is_refused(there: Lab, elsewhere: Path) -> None:
    far = elsewhere / "far.json"
    far.write_bytes(OLD)
    os.link(far, elsewhere / "other.json")
    run_dir = there.run(f"append:{far}", results=(os.fspath(far),))
    assert "has 2 hard links and lies on another file system" in (ending(run_dir).error or "")
    assert far.read_bytes() == OLD


def test_a_second_signal_costs_nothing(there: Lab) -> None:
    gate, here = there.folder / "gate", there.folder / "here"
    os.mkfifo(gate)
    stubborn = there.folder / "stubborn.py"
    stubborn.write_text(
        "import signal, sys, pathlib\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"pathlib.Path({os.fspath(there.fixed)!r}).write_text('x')\n"
        f"pathlib.Path({os.fspath(here)!r}).touch()\n"
        f"open({os.fspath(gate)!r}).read()\n"
    )
    run_dir = there.make(there.request(command=(sys.executable, os.fspath(stubborn)), script=""))
    running = there.begin(run_dir)
    until(here.exists, "the script")
    for _ in range(3):
        running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 130
    child = journal(run_dir).child
    assert child is not None
    assert not _alive(child.pid)
    stubborn.unlink()
    assert there.is_as_before()
