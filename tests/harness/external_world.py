"""A host with a script of its user's: an evaluation folder with old results, and run directories that ask for it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dflash_tui.harness import rundir
from dflash_tui.records.external import ExternalRequest, Journal
from dflash_tui.records.manifest import CheckpointRef, Manifest, TargetRef
from dflash_tui.records.process import ExitRecord, ProcessRecord
from tests.harness.world import REPOSITORY, harness

SCRIPT = Path(__file__).parent / "scripts" / "run_eval.py"
OLD = b'{"avg_vanilla_streak": 0.7777777777777778, "checkpoint": "checkpoint_v4_step4k.pt"}\n'
OLD_NS = 1_747_642_314_123_456_789
SECONDS = 60.0


@dataclass(frozen=True)
class Lab:
    """`root` is the evaluation root; the script and its old results lie in `folder`."""

    root: Path
    folder: Path

    @property
    def script(self) -> Path:
        return self.folder / "run_eval.py"

    @property
    def fixed(self) -> Path:
        """The path that the script writes to whatever it is told."""
        return self.folder / "eval_results.json"

    def request(self, *words: str, **changes: Any) -> ExternalRequest:
        command = (sys.executable, os.fspath(self.script), *words)
        digest = hashlib.sha256(self.script.read_bytes()).hexdigest()
        return replace(ExternalRequest(command, command, os.fspath(self.script), digest, total=45), **changes)

    def make(self, request: ExternalRequest, name: str = "run-1") -> Path:
        """A run directory that asks for it, with a checkpoint as a hard link."""
        run_dir = self.root / "runs" / name
        (run_dir / "checkpoint").mkdir(parents=True)
        os.link(self.root / "checkpoints" / "checkpoint.pt", run_dir / "checkpoint" / "checkpoint.pt")
        manifest = Manifest(
            version=1,
            run_id=name,
            created_at="2026-05-20T10:00:00Z",
            preset="quick",
            anchors="",
            blocks_per_prompt=15,
            block_size=0,
            checkpoint=CheckpointRef("ct200", "/c/checkpoint.pt", "checkpoint/checkpoint.pt", 4000, "tiny", 1, 0.0),
            drafter=None,
            audit=None,
            target=TargetRef("/models/target", "target", ""),
            prompts_path="/eval/prompts.jsonl",
            prompts=(),
            hidden_states="/eval/hidden_states",
            threads=1,
            request_id=f"request of {name}",
            harness="external:test",
            tool_version="0",
            external=request,
        )
        rundir.write(run_dir / rundir.MANIFEST, manifest)
        return run_dir

    def run(self, *words: str, name: str = "run-1", **changes: Any) -> Path:
        """Carry it out to its end."""
        run_dir = self.make(self.request(*words, **changes), name)
        harness("external", run_dir, "--foreground")
        return run_dir

    def begin(self, run_dir: Path, how: str = "--foreground", stdin: int | None = None) -> subprocess.Popen[bytes]:
        """Carry it out in a process that can be killed."""
        command = [sys.executable, "-m", "dflash_tui.harness", "external", os.fspath(run_dir), how]
        environment = {**os.environ, "PYTHONPATH": os.fspath(REPOSITORY)}
        return subprocess.Popen(command, env=environment, cwd="/", stdin=stdin)

    def is_as_before(self) -> bool:
        """The old results lie where they were, as they were, and nothing else lies beside the script."""
        found = self.fixed.stat()
        names = {path.name for path in self.folder.iterdir()} - {"gate", "here", "late"}
        same = self.fixed.read_bytes() == OLD and found.st_mtime_ns == OLD_NS and found.st_mode & 0o777 == 0o640
        return same and names <= {"run_eval.py", "eval_results.json"}


def lab(root: Path) -> Lab:
    made = Lab(root / "eval", root / "scripts")
    (made.root / "runs").mkdir(parents=True)
    (made.root / "checkpoints").mkdir()
    (made.root / "checkpoints" / "checkpoint.pt").write_bytes(b"weights" * 1000)
    made.folder.mkdir()
    shutil.copyfile(SCRIPT, made.script)
    made.fixed.write_bytes(OLD)
    made.fixed.chmod(0o640)
    os.utime(made.fixed, ns=(OLD_NS, OLD_NS))
    return made


def journal(run_dir: Path) -> Journal:
    return rundir.read(run_dir / "external.json", Journal)


def ending(run_dir: Path) -> ExitRecord:
    return rundir.read(run_dir / rundir.EXIT, ExitRecord)


def process_of(run_dir: Path) -> ProcessRecord:
    return rundir.read(run_dir / rundir.PROCESS, ProcessRecord)


def log(run_dir: Path) -> str:
    return (run_dir / rundir.LOG).read_text()


def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)
