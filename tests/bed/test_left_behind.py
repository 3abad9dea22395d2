"""Whatever becomes of a job, the hosts keep run directories, fetched checkpoints and the harness, and nothing else."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from dflash_tui.evals.ship import harness_file
from tests.bed.bed import Bed
from tests.sshd import processes_with
from tests.workstation import line_with, tree, until

PLACES = ("/tmp", "/var", "/dev/shm", "/run", "/home", "/srv", "/opt", "/root")
"""Where a user may write."""


def owned(bed: Bed) -> set[str]:
    """Everything on this machine that belongs to the evaluation host's user, whose number only users of other beds
    have. What the bed itself notes is left out."""
    uid, found = bed.ct129.user.uid, set()
    for place in PLACES:
        for folder, folders, files in os.walk(place):
            folders[:] = [name for name in folders if not _of_a_bed(bed, os.path.join(folder, name))]
            for name in (*folders, *files):
                path = os.path.join(folder, name)
                try:
                    if os.lstat(path).st_uid == uid:
                        found.add(path)
                except OSError:
                    continue  # another program's, gone already
    return found


def _of_a_bed(bed: Bed, path: str) -> bool:
    """Whether it is another bed's, or this one's own."""
    return path == os.fspath(bed.marks) or (
        path.startswith("/tmp/dflash-") and not path.startswith(os.fspath(bed.root))
    )


def below(bed: Bed, paths: set[str]) -> set[str]:
    """The paths below the evaluation root, from there; run directories by their name alone."""
    assert all(Path(path).is_relative_to(bed.evaluations) for path in paths), paths
    parts = [Path(path).relative_to(bed.evaluations).parts for path in paths]
    return {"/".join(words[:2] if words[0] == "runs" else words) for words in parts}


def processes(bed: Bed) -> list[str]:
    """What runs of the product on the evaluation host."""
    commands = (Path(f"/proc/{pid}/cmdline").read_bytes() for pid in processes_with(os.fspath(bed.python_there.parent)))
    return [os.fsdecode(command) for command in commands if b"sshd" not in command]


def test_after_every_way_to_end_a_job_only_runs_checkpoints_and_the_harness_are_left(bed: Bed) -> None:
    before, training = owned(bed), tree(bed.container)
    homes = {machine.name: tree(machine.user.home) for machine in (bed.gate, bed.pve1, bed.ct129)}

    done = bed.json("eval")["result"]["run_id"]

    bed.hold("evaluation")
    child = bed.begin("eval", "--again", "--json")
    stopped = line_with(child.stderr, "run ").split()[1]
    bed.reached("evaluation")
    stopping = bed.begin("stop", stopped, "--json")
    line_with(stopping.stderr, "is asked to stop")
    bed.release("evaluation")
    assert json.loads(stopping.communicate(timeout=60)[0])["state"] in ("stopped", "finished")
    child.communicate(timeout=60)

    wrong = bed.other_config("wrong.toml", evaluation={"python": "/no/python3"})
    assert "/no/python3" in bed.run("--config", wrong, "eval", "--again").failed(1)

    large = bed.save_large(5000, 160)
    child = bed.begin("fetch", "--full", "--limit", "40 MB/s")
    line_with(child.stderr, "moving")
    parts = "checkpoints/*/step_5000-full/.*.part"
    until(lambda: any(part.stat().st_size > 70 << 20 for part in bed.evaluations.glob(parts)), "a piece worth keeping")
    child.send_signal(signal.SIGINT)
    assert child.wait(60) == 130
    child.communicate()
    pieces = {os.fspath(path) for path in bed.evaluations.glob("checkpoints/*/step_5000-full/.*")}
    assert any(path.endswith(".part") for path in pieces)
    dry = bed.json("clean", "--dry-run")
    assert dry["found"] == []
    assert {kept["path"] for kept in dry["kept"]} == pieces  # young ones may be somebody's work
    assert bed.json("fetch", "--full")["already_there"] is False  # it is continued
    large.unlink()
    large.parent.rmdir()

    left = below(bed, owned(bed) - before)
    assert left == {
        ".dflash", f".dflash/{harness_file().name}", "runs", f"runs/{done}", f"runs/{stopped}", "checkpoints",
        "checkpoints/slammed5",
        *(f"checkpoints/slammed5/{step}" for step in ("step_4000", "step_5000-full")),
        *(f"checkpoints/slammed5/{step}/{name}" for step in ("step_4000", "step_5000-full")
          for name in ("checkpoint.pt", ".transfer.json")),
        "checkpoints/slammed5/step_4000/checkpoint.pt.slim.json",
    }  # fmt: skip
    assert tree(bed.container) == training
    assert {machine.name: tree(machine.user.home) for machine in (bed.gate, bed.pve1, bed.ct129)} == homes
    assert processes(bed) == []
    assert list(bed.temporary.iterdir()) == []
    assert {path.name for path in bed.home.rglob("*") if path.is_file()} == {
        "config.toml", "config", "known_hosts", *(f"id_{name}" for name in ("gate", "pve1", "ct129")),
    }  # fmt: skip
