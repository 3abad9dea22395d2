"""A user's workstation: a HOME of its own, a config as the README shows it, and the commands as processes."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from dflash_tui.records.codec import loads
from dflash_tui.records.manifest import Manifest
from dflash_tui.records.process import ProcessRecord
from tests.cases import known
from tests.harness.world import REPOSITORY, World

STORY = known("cases/story")
RAW = known("cases/checkpoints/raw-step/step_4000/checkpoint.pt")
SECONDS = 120.0
FILES_OF_A_RUN = ("manifest.json", "blocks.jsonl", "results.json", "log.txt", "progress.jsonl", "exit.json")


@dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    argv: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """stdout as exactly one strict JSON document; the command must have ended well."""
        assert self.code in (0, 3), self
        return json.loads(self.out, parse_constant=_not_json)

    def failed(self, code: int) -> str:
        """The one sentence of a command that failed with `code`: nothing on stdout, no traceback. Where stderr has JSON
        lines it is the last one's, as it would be said in words."""
        assert self.code == code, self
        assert self.out == "", self
        assert "Traceback" not in self.err, self
        last = self.err.strip().splitlines()[-1]
        if not last.startswith("{"):
            return last
        told = json.loads(last)
        assert told.keys() == {"event", "sentence"}, self
        assert told["event"] == "error", self
        return f"dflash-tui: {told['sentence']}"


@dataclass(frozen=True)
class Workstation:
    """`home` is the user's HOME, `container` the training's root folder as this machine sees it, `lab` the evaluation
    host's folder with a real target, prompts and hidden states."""

    root: Path
    home: Path
    container: Path
    lab: World

    @property
    def state(self) -> Path:
        """The folder that keeps runs and pins."""
        return self.root / "state"

    @property
    def temporary(self) -> Path:
        """TMPDIR of the commands."""
        return self.root / "tmp"

    @property
    def evaluations(self) -> Path:
        """The folder on the evaluation host that receives runs, checkpoints and the harness."""
        return self.lab.root / "eval"

    @property
    def config(self) -> Path:
        """The config file in the user's config folder."""
        return self.home / ".config" / "dflash-tui" / "config.toml"

    @property
    def entering(self) -> tuple[str, ...]:
        """What is put before a command that has to run elsewhere than the tests."""
        return ()

    @property
    def launcher(self) -> tuple[str, ...]:
        """What is put before a command in the container, on the host that has it."""
        return (os.fspath(self.container.parent / "pct"), "exec", "200", "--")

    @property
    def python(self) -> str:
        """The Python of the evaluation host."""
        return sys.executable

    def environment(self) -> dict[str, str]:
        """What a login shell of this user would have."""
        return {
            "HOME": os.fspath(self.home),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "USER": getpass.getuser(),
            "TMPDIR": os.fspath(self.temporary),
            "PYTHONPATH": os.fspath(REPOSITORY),
        }

    def command(self, *argv: str | Path, state: Path | None = None) -> list[str]:
        """A command as the shell would start it."""
        words = (os.fspath(word) for word in argv)
        return [*self.entering, sys.executable, "-m", "dflash_tui", "--state", os.fspath(state or self.state), *words]

    def run(self, *argv: str | Path, state: Path | None = None) -> Ran:
        """Run a command to its end."""
        done = subprocess.run(
            self.command(*argv, state=state),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            cwd=self.home,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return Ran(tuple(done.args), done.returncode, done.stdout, done.stderr)

    def json(self, *argv: str | Path, state: Path | None = None) -> Any:
        """What a command answers with --json."""
        ran = self.run(*argv, "--json", state=state)
        assert ran.code == 0, ran
        return ran.data

    def begin(self, *argv: str | Path, state: Path | None = None) -> subprocess.Popen[str]:
        """Start a command and go on."""
        return subprocess.Popen(
            self.command(*argv, state=state),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            cwd=self.home,
            env=self.environment(),
            # Tests may run where interrupts are ignored, and a child would inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def write_config(self) -> None:
        """The config of `config_text` in its place."""
        self.config.parent.mkdir(parents=True)
        self.config.write_text(self.config_text(), encoding="utf-8")

    def other_config(self, name: str, **changes: dict[str, Any]) -> Path:
        """A config file of another name, for --config."""
        path = self.root / name
        path.write_text(self.config_text(**changes), encoding="utf-8")
        return path

    def config_text(self, **changes: dict[str, Any]) -> str:
        """The config as the README shows it; `changes` replaces keys of its tables (`hosts__pve1` is hosts.pve1), and a
        table that is changed to {} is left out."""
        tables: dict[str, dict[str, Any]] = {
            "training": {
                "host": "ct200",
                "log": "/data/slammed5/train.log",
                "checkpoints": "/data/slammed5/checkpoints",
                "arguments": "/data/slammed5/train_args.json",
            },
            "evaluation": {
                "host": "ct129",
                "root": os.fspath(self.evaluations),
                "target": os.fspath(self.lab.target.folder),
                "prompts": os.fspath(self.lab.root / "prompts.jsonl"),
                "hidden_states": os.fspath(self.lab.hidden_states),
                "python": self.python,
                "threads": 1,
            },
            "drafter": {"config": os.fspath(self.lab.root / "drafter.json")},
            "hosts.pve1": {"ssh": "pve1"},
            "hosts.ct200": {"via": "pve1", "container": list(self.launcher)},
            "hosts.ct129": {"ssh": "ct129"},
            "[[baseline]]": {
                "name": "previous",
                "host": "ct129",
                "file": os.fspath(self.evaluations / "previous.json"),
            },
        }
        for name, values in changes.items():
            key = "[[baseline]]" if name == "baseline" else f"{name.replace('__', '.')}"
            tables[key] = {**tables.get(key, {}), **values} if values else {}
        return "\n".join(
            (name if name.startswith("[") else f"[{name}]")
            + "\n"
            + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
            for name, values in tables.items()
            if values
        )

    def fill(self) -> None:
        """What the two hosts have before anything begins: a training with a checkpoint of step 4000 in the container,
        an older result at the evaluation host, and a drafter's config there."""
        folder = self.container / "data" / "slammed5"
        folder.mkdir(parents=True)
        for name in ("train.log", "train_args.json"):
            shutil.copyfile(STORY / name, folder / name)
        self.save(4000)
        self.evaluations.mkdir(exist_ok=True)
        shutil.copyfile(STORY / "eval_results.json", self.evaluations / "previous.json")
        shutil.copyfile(self.lab.case.folder / "config.json", self.lab.root / "drafter.json")

    def save(self, step: int, training: str = "slammed5") -> Path:
        """A checkpoint in the container, as its trainer would save it."""
        folder = self.container / "data" / training / "checkpoints" / f"step_{step}"
        folder.mkdir(parents=True)
        shutil.copyfile(RAW, folder / "checkpoint.pt")
        return folder / "checkpoint.pt"

    def run_dirs(self) -> set[str]:
        """The run directories on the evaluation host."""
        runs = self.evaluations / "runs"
        return {path.name for path in runs.iterdir()} if runs.exists() else set()

    def manifest(self, run_id: str) -> Manifest:
        """A run's manifest on the evaluation host."""
        path = self.evaluations / "runs" / run_id / "manifest.json"
        return loads(Manifest, path.read_bytes(), str(path))

    def process(self, run_id: str) -> ProcessRecord:
        """The process of a run."""
        path = self.evaluations / "runs" / run_id / "process.json"
        return loads(ProcessRecord, path.read_bytes(), str(path))


@dataclass(frozen=True)
class Login:
    """An entry of ~/.ssh/config: its options, the private key that it uses, and the host's public one."""

    alias: str
    options: Mapping[str, str | int]
    key: Path
    known: str


def write_ssh(home: Path, logins: Sequence[Login]) -> None:
    """`~/.ssh` with aliases, an identity for each host and the hosts' keys."""
    folder = home / ".ssh"
    folder.mkdir(mode=0o700)
    blocks = []
    for login in logins:
        identity = folder / f"id_{login.alias}"
        shutil.copyfile(login.key, identity)
        identity.chmod(0o600)
        options = {**login.options, "IdentityFile": f"~/.ssh/{identity.name}", "IdentitiesOnly": "yes"}
        blocks.append(f"Host {login.alias}\n" + "".join(f"  {name} {value}\n" for name, value in options.items()))
    (folder / "config").write_text("\n".join(blocks))
    (folder / "known_hosts").write_text("".join(f"{login.known}\n" for login in logins))


def _not_json(word: str) -> object:
    raise AssertionError(f"{word} is no JSON")


def line_with(stream: IO[str] | None, text: str) -> str:
    """Wait for a line of a running command that has `text` in it."""
    assert stream is not None
    seen = []
    for line in stream:
        seen.append(line)
        if text in line:
            return line
    raise AssertionError(f"ended without {text!r}: {seen}")


@contextmanager
def in_time(command: subprocess.Popen[str]) -> Iterator[None]:
    """A begun command is killed when it still runs at the end of the block, or after a while, so that nobody waits for
    its words forever."""
    watchdog = threading.Timer(SECONDS, command.kill)
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()
        command.kill()
        command.wait()


def tree(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file below a folder: inode, mtime in nanoseconds, content."""
    return {
        os.fspath(path.relative_to(folder)): (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def until(true: Callable[[], object], what: str, *, seconds: float = SECONDS) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)
