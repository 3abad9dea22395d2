"""A training and an evaluation host in folders of this machine: real files, real harness, real torch, no network."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import dflash_tui
from dflash_tui.config import BaselineConfig, Config, EvaluationConfig, TrainingConfig
from dflash_tui.console import events as happened
from dflash_tui.console.console import Console
from dflash_tui.hosts.local import LocalHost
from dflash_tui.results.store import Store
from tests.cases import known
from tests.harness.world import World, world

STORY = known("cases/story")
DEMO = Path(dflash_tui.__file__).parent / "demo" / "data"
Kind = TypeVar("Kind")


@dataclass
class Bench:
    """`lab` is the evaluation side, `workspace` the training's; `told` collects every event of the console."""

    root: Path
    lab: World
    workspace: Path
    console: Console
    told: list[happened.Event]

    def save(self, step: int) -> Path:
        """A checkpoint of the training, as its trainer would save it."""
        source = known("cases/checkpoints/raw-step/step_4000/checkpoint.pt")
        folder = self.workspace / "checkpoints" / f"step_{step}"
        folder.mkdir(parents=True)
        shutil.copyfile(source, folder / "checkpoint.pt")
        return folder / "checkpoint.pt"

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self.told if isinstance(event, kind)]


def capturable(made: Bench, *folders: Path) -> Path:
    """Give a bench the demo's target, four prompts and the hidden states of three of them, which can be captured from.
    `folders` are looked into first; the folder that holds the three."""
    cache, prompts = made.root / "lab" / "cache", made.root / "lab" / "demo.jsonl"
    shutil.copytree(DEMO / "hidden_states", cache)
    prompts.write_text("".join((DEMO / "prompts.jsonl").read_text().splitlines(keepends=True)[:4]))
    evaluation = replace(
        made.console.evaluation,
        target=str(DEMO / "target"),
        prompts=str(prompts),
        hidden_states=(*map(str, folders), str(cache)),
    )
    made.console.config = replace(made.console.config, evaluation=evaluation)
    return cache


def bench(root: Path, **evaluation: object) -> Bench:
    """`evaluation` replaces fields of the evaluation's config."""
    (root / "lab").mkdir()
    lab = world(root / "lab")
    workspace = root / "workspace"
    workspace.mkdir()
    shutil.copyfile(STORY / "train.log", workspace / "train.log")
    shutil.copyfile(STORY / "train_args.json", workspace / "train_args.json")
    settings = {
        "host": "lab",
        "root": str(root / "lab" / "eval"),
        "target": str(lab.target.folder),
        "prompts": str(root / "lab" / "prompts.jsonl"),
        "hidden_states": (str(lab.hidden_states),),
        "python": sys.executable,
        "threads": 1,
        **evaluation,
    }
    config = Config(
        path=str(root / "config.toml"),
        training=TrainingConfig(
            name="slammed5",
            host="ct200",
            log=str(workspace / "train.log"),
            checkpoints=str(workspace / "checkpoints"),
            arguments=str(workspace / "train_args.json"),
        ),
        evaluation=EvaluationConfig(**settings),  # type: ignore[arg-type]
        hosts={},
        drafter={"config": str(lab.case.folder / "config.json")},
        baselines=(
            BaselineConfig("previous", str(STORY / "eval_results.json"), host="lab"),
            BaselineConfig("z-lab", str(root / "no-such-file.json"), host="lab"),
        ),
    )
    told: list[happened.Event] = []
    hosts = {"ct200": LocalHost("ct200"), "lab": LocalHost("lab"), "local": LocalHost("local")}
    console = Console(config, Store(root / "state"), hosts, told=told.append)
    return Bench(root, lab, workspace, console, told)
