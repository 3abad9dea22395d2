"""Start-up, measured: CPU time (user + system) of a process until the refresh that shows all four panels, against a
Textual App with one Static until its first refresh. Alternating runs, medians.

    python -m tests.bench.startup [ROUNDS]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROUNDS = 15
LIMIT = 1.6
LATER = ("asyncssh", "numpy", "torch", "dflash_tui.hosts.ssh", "dflash_tui.evals", "dflash_tui.demo")

STATIC = """
from time import process_time
from textual.app import App
from textual.widgets import Static
class One(App):
    def compose(self):
        yield Static("hello")
    def on_mount(self):
        self.call_after_refresh(self.done)
    def done(self):
        report(process_time())
        self.exit()
One().run(headless=True, size=(120, 40))
"""
APP = """
from time import process_time
from dflash_tui.tui.start import make_app
def run(**options):
    app = make_app(**options)
    def painted():
        spent = process_time()
        panels = app.overview.panels.values()
        assert all(panel.drawing.lines and panel.region.area for panel in panels), "a panel is not on the screen"
        report(spent)
        app.exit()
    app.first_paint = painted
    app.run(headless=True, size=(120, 40))
"""
DEMO = APP + "run()\n"
WATCH = f"""
from pathlib import Path
from dflash_tui.config import load_config
{APP}
from dflash_tui.console.state import State, TrainingPane
config = load_config(Path(sys.argv[1]) / "config.toml")
state = State(training=TrainingPane(name=config.training.name, host=config.training.host))
run(state=state)
"""
REPORT = """
import json, sys
def report(spent):
    print(json.dumps([spent, sorted(sys.modules)]), flush=True)
"""
CONFIG = """
[training]
host = "train"
log = "/workspace/train.log"
checkpoints = "/workspace/checkpoints"
[evaluation]
host = "eval"
root = "/root/eval"
target = "/root/models/target"
prompts = "/root/eval/prompts.jsonl"
hidden_states = "/root/eval/hidden"
[hosts.train]
ssh = "train"
[hosts.eval]
ssh = "eval"
"""
PROGRAMS = {"Textual, one Static": STATIC, "dflash-tui demo": DEMO, "dflash-tui": WATCH}


@dataclass(frozen=True)
class Row:
    """A program's median CPU seconds, its ratio to the first one's, and which modules came too early."""

    name: str
    seconds: float
    ratio: float
    modules: int
    early: tuple[str, ...]


def measure(rounds: int = ROUNDS) -> list[Row]:
    """Run every program `rounds` times in turn (after one run that fills caches)."""
    spent: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    modules: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.toml").write_text(CONFIG)
        for number in range(rounds + 1):
            for name, program in PROGRAMS.items():
                seconds, modules[name] = _run(program, folder)
                if number:
                    spent[name].append(seconds)
    medians = {name: statistics.median(values) for name, values in spent.items()}
    base = next(iter(medians.values()))
    return [
        Row(
            name,
            seconds,
            seconds / base,
            len(modules[name]),
            tuple(m for m in LATER if any(found == m or found.startswith(f"{m}.") for found in modules[name])),
        )
        for name, seconds in medians.items()
    ]


def _run(program: str, folder: str) -> tuple[float, list[str]]:
    environment = {**os.environ, "HOME": folder, "TEXTUAL_ANIMATIONS": "none", "TERM": "xterm-256color"}
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", REPORT + program, folder],
        cwd=root, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if done.returncode or not done.stdout.strip():
        raise RuntimeError(f"start-up failed with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    seconds, modules = json.loads(done.stdout.strip().splitlines()[-1])
    return seconds, modules


def table(rows: list[Row]) -> str:
    """The rows as text."""
    lines = [f"{'until the first refresh':<24}{'CPU':>8}{'ratio':>8}{'modules':>9}  too early"]
    lines += [
        f"{row.name:<24}{row.seconds * 1000:>5.0f} ms{row.ratio:>7.2f}×{row.modules:>9}  "
        + (", ".join(row.early) or "none")
        for row in rows
    ]
    return "\n".join(lines)


def main() -> int:
    """Print the table; 1 when a limit is not met."""
    rows = measure(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
    print(table(rows))
    return int(any(row.ratio > LIMIT or row.early for row in rows))


if __name__ == "__main__":
    sys.exit(main())
