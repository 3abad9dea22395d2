"""What `clean` takes from an evaluation host, and what it leaves alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dflash_tui.evals.errors import EvaluationError
from dflash_tui.evals.leftovers import clean
from dflash_tui.evals.ship import harness_file
from dflash_tui.hosts.local import LocalHost
from dflash_tui.records.leftovers import Leftovers

PIECE = ".checkpoint.pt.0123456789ab.01234567.part"
OTHER = f"harness-{'0' * 64}.pyz"
LONG_AGO = 3600


@dataclass(frozen=True)
class Root:
    """An evaluation root on this machine. What is made in it was made an hour ago, unless `old` is False."""

    folder: Path

    @property
    def features(self) -> Path:
        return self.folder.parent / "hidden"

    def file(self, path: str, data: bytes = b"x" * 1000) -> Path:
        made = self.folder / path
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_bytes(data)
        return made

    def fetched(self, step: str = "checkpoints/slammed5/step_4000") -> Path:
        """A checkpoint as a transfer leaves it, with its record."""
        path = self.file(f"{step}/checkpoint.pt", b"w" * 5000)
        found = path.stat()
        here = {"size": found.st_size, "mtime": float(int(found.st_mtime)), "inode": found.st_ino}
        entry = {"sha256": "0" * 64, "here": here, "host": "ct200", "path": "/data/checkpoint.pt", "source": here}
        self.file(f"{step}/.transfer.json", json.dumps({"version": 1, "files": {"checkpoint.pt": entry}}).encode())
        return path

    async def clean(
        self, *, checkpoints: bool = False, remove: bool = True, later: float = LONG_AGO, before: str = ""
    ) -> Leftovers:
        """What is cleaned when it is `later` seconds from now: a file's own times can't be set back. `before`: what the
        Python there does first."""
        python = self.folder.parent / "python"
        python.write_text(
            f"#!{sys.executable}\nimport sys, time\nnow = time.time\ntime.time = lambda: now() + {later}\n{before}"
            "sys.argv = sys.argv[1:]\nexec(compile(sys.stdin.read(), '-', 'exec'), {'__name__': '__main__'})\n"
        )
        python.chmod(0o755)
        return await clean(
            LocalHost("lab"),
            os.fspath(python),
            os.fspath(self.folder),
            (os.fspath(self.features),),
            checkpoints=checkpoints,
            remove=remove,
        )

    def names(self) -> set[str]:
        """Everything below the root."""
        return {os.fspath(path.relative_to(self.folder)) for path in self.folder.rglob("*")}


@pytest.fixture
def root(tmp_path: Path) -> Root:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "eval" / "runs").mkdir(parents=True)
    return Root(tmp_path / "eval")


def kinds(found: Leftovers) -> dict[str, str]:
    return {Path(item.path).name: item.kind for item in found.found}


def reasons(found: Leftovers) -> dict[str, str]:
    return {Path(item.path).name: item.reason for item in found.kept}


@pytest.fixture
def everything(root: Root) -> Root:
    """One leftover of every kind, and things that only look like some."""
    root.file(f".dflash/{harness_file().name}")
    root.file(f".dflash/{OTHER}")
    root.file(".dflash/.harness-0000000000000000000000000000000.0123456789ab.tmp")
    root.file(f"checkpoints/slammed5/step_5000/{PIECE}")
    root.file("checkpoints/slammed5/step_6000/.transfer.json.0123456789ab.tmp")
    root.fetched()
    root.file("runs/one/manifest.json")
    root.file("runs/one/.manifest.json.0123456789ab.tmp")
    root.file("runs/one/.results.json.4711.part")
    root.file("runs/one/checkpoint/.mine.0123456789ab.01234567.part")
    root.file("../hidden/.p0.safetensors.4711.part")
    root.file("../hidden/p0.safetensors")
    root.file("notes.tmp")
    root.file("checkpoints/README")
    root.file("checkpoints/slammed5/step_5000/backup.part")
    root.file(".dflash/harness-mine.pyz")
    return root


GOES = {
    OTHER: "harness",
    ".harness-0000000000000000000000000000000.0123456789ab.tmp": "temporary file",
    PIECE: "transfer piece",
    ".transfer.json.0123456789ab.tmp": "temporary file",
    "step_6000": "empty folder",
    ".manifest.json.0123456789ab.tmp": "temporary file",
    ".results.json.4711.part": "temporary file",
    ".p0.safetensors.4711.part": "temporary file",
}


async def test_what_its_name_and_place_prove_to_be_ours_goes_and_nothing_else(everything: Root) -> None:
    before = everything.names()
    assert kinds(await everything.clean()) == GOES
    assert {Path(path).name for path in before - everything.names()} == GOES.keys() - {".p0.safetensors.4711.part"}
    assert {path.name for path in everything.features.iterdir()} == {"p0.safetensors"}
    assert kinds(await everything.clean()) == {}


async def test_a_dry_run_says_the_same_and_removes_nothing(everything: Root) -> None:
    before = everything.names()
    dry = await everything.clean(remove=False)
    assert everything.names() == before
    assert dry == await everything.clean()


async def test_a_dry_run_on_a_host_that_was_never_used_makes_nothing(tmp_path: Path) -> None:
    never = Root(tmp_path / "nowhere" / "eval")
    never.folder.parent.mkdir()
    assert await never.clean(remove=False) == Leftovers((), ())
    assert not never.folder.exists()


async def test_what_is_young_stays(everything: Root) -> None:
    found = await everything.clean(later=0)
    assert found.found == ()
    assert "what is younger than 900 s may be in use" in reasons(found)[PIECE]


async def test_what_somebody_writes_to_stays(root: Root) -> None:
    piece = root.file(f"checkpoints/slammed5/step_5000/{PIECE}")
    with subprocess.Popen(["dd", f"of={piece}"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as writer:
        while not any(
            os.path.samefile(f"/proc/{writer.pid}/fd/{handle}", piece)
            for handle in os.listdir(f"/proc/{writer.pid}/fd")
            if os.path.exists(f"/proc/{writer.pid}/fd/{handle}")
        ):
            time.sleep(0.01)
        found = await root.clean()
        writer.kill()
    assert found.found == ()
    assert reasons(found) == {PIECE: "somebody has it open"}


async def test_a_part_its_journal_and_a_claim_that_nobody_holds_go(root: Root) -> None:
    names = (".checkpoint.pt.0123456789ab.part", ".checkpoint.pt.0123456789ab.journal", ".transfer.claim")
    for name in names:
        root.file(f"checkpoints/slammed5/step_5000/{name}")
    assert (await root.clean(later=0)).found == ()
    found = kinds(await root.clean())
    assert found.keys() - {"step_5000", "slammed5"} == set(names)


async def test_a_checkpoint_stays_while_a_transfer_claims_its_folder(root: Root) -> None:
    path = root.fetched()
    claim = root.file("checkpoints/slammed5/step_4000/.transfer.claim")
    os.utime(claim, (time.time() + LONG_AGO,) * 2)
    assert (await root.clean(checkpoints=True)).found == ()
    assert path.exists()


@pytest.fixture
def working(root: Root) -> Iterator[Root]:
    """A run that works with a harness of another version."""
    path = root.file(f".dflash/{OTHER}", b"import sys; sys.stdin.read()")
    with subprocess.Popen([sys.executable, path, "evaluate", "run"], stdin=subprocess.PIPE) as child:
        while os.fsencode(path) not in Path(f"/proc/{child.pid}/cmdline").read_bytes():
            time.sleep(0.01)
        yield root
        child.kill()


async def test_the_harness_of_a_run_that_works_stays(working: Root) -> None:
    found = await working.clean()
    assert found.found == ()
    assert reasons(found) == {OTHER: "a run works with it"}


async def test_another_way_to_the_harness_of_a_run_that_works_leads_to_the_same(working: Root) -> None:
    other_way = working.folder.parent / "other-way"
    other_way.symlink_to(working.folder)
    assert reasons(await replace(working, folder=other_way).clean()) == {OTHER: "a run works with it"}


async def test_fetched_checkpoints_go_when_that_is_asked(root: Root) -> None:
    root.fetched()
    assert (await root.clean()).found == ()
    found = await root.clean(checkpoints=True)
    assert kinds(found) == {
        "checkpoint.pt": "checkpoint", ".transfer.json": "record", "step_4000": "empty folder",
        "slammed5": "empty folder",
    }  # fmt: skip
    assert sum(item.bytes for item in found.found if item.kind == "checkpoint") == 5000
    assert root.names() == {"runs", "checkpoints"}


async def test_a_checkpoint_that_a_run_links_frees_nothing_and_says_which(root: Root) -> None:
    path = root.fetched()
    linked = root.folder / "runs" / "full-1" / "checkpoint" / "checkpoint.pt"
    linked.parent.mkdir(parents=True)
    os.link(path, linked)
    (item,) = [item for item in (await root.clean(checkpoints=True)).found if item.kind == "checkpoint"]
    assert (item.bytes, item.reason) == (0, "full-1 keeps its bytes by a hard link")
    assert linked.read_bytes() == b"w" * 5000


async def test_a_checkpoint_that_is_not_the_one_that_was_fetched_stays(root: Root) -> None:
    path = root.fetched()
    path.write_bytes(b"mine")
    found = await root.clean(checkpoints=True)
    assert found.found == ()
    assert "is not the file that was fetched" in reasons(found)["checkpoint.pt"]


async def test_a_checkpoint_stays_while_its_folder_is_filled(root: Root) -> None:
    path = root.fetched()
    piece = root.file(f"checkpoints/slammed5/step_4000/{PIECE}")
    with piece.open("ab"):
        found = await root.clean(checkpoints=True)
    assert found.found == ()
    assert path.exists()


async def test_a_folder_without_a_record_is_not_ours(root: Root) -> None:
    path = root.file("checkpoints/slammed5/step_4000/checkpoint.pt")
    assert (await root.clean(checkpoints=True)) == Leftovers((), ())
    assert path.exists()


async def test_a_record_leads_nowhere_else(root: Root) -> None:
    outside = root.file("../outside.pt")
    found = outside.stat()
    here = {"size": found.st_size, "mtime": int(found.st_mtime), "inode": found.st_ino}
    files = {name: {"here": here} for name in ("../../../../outside.pt", os.fspath(outside))}
    root.file("checkpoints/a/b/.transfer.json", json.dumps({"version": 1, "files": files}).encode())
    assert (await root.clean(checkpoints=True)).found == ()
    assert outside.exists()


@pytest.mark.parametrize("here", [5, None, {"size": 5000}, {"size": 5000, "mtime": None}])
async def test_of_a_damaged_record_no_file_is_the_one_that_was_fetched(root: Root, here: object) -> None:
    path = root.file("checkpoints/a/b/checkpoint.pt", b"w" * 5000)
    record = json.dumps({"files": {"checkpoint.pt": {"here": here}}})
    root.file("checkpoints/a/b/.transfer.json", record.encode())
    found = await root.clean(checkpoints=True)
    assert found.found == ()
    assert "is not the file that was fetched" in reasons(found)[path.name]


async def test_links_are_not_followed(root: Root, tmp_path: Path) -> None:
    elsewhere = Root(tmp_path / "elsewhere")
    piece = elsewhere.file(f"step_1/{PIECE}")
    (root.folder / "checkpoints").mkdir()
    (root.folder / "checkpoints" / "linked").symlink_to(elsewhere.folder)
    (root.folder / "runs" / "linked").symlink_to(elsewhere.folder)
    assert (await root.clean(checkpoints=True)).found == ()
    assert piece.exists()


async def test_what_may_not_be_removed_is_said(root: Root) -> None:
    path = root.file(f".dflash/{OTHER}")
    found = await root.clean(before="import os\ndef unlink(path): raise PermissionError(13, 'Permission denied')\n"
                                    "os.unlink = unlink\n")  # fmt: skip
    assert found.found == ()
    assert reasons(found) == {OTHER: "can't be removed: Permission denied"}
    assert path.exists()


async def test_a_python_that_is_not_there_is_said_with_the_key_to_set(root: Root) -> None:
    with pytest.raises(EvaluationError, match=r"set evaluation\.python"):
        await clean(LocalHost("lab"), "/no/python3", os.fspath(root.folder), (), checkpoints=False, remove=False)
