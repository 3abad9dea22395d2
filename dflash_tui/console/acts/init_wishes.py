"""What the flags of `init` say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dflash_tui.config import ConfigError
from dflash_tui.console.acts.init_hosts import wrong_host


@dataclass(frozen=True)
class Wishes:
    """What the flags say; "" or () where they are silent."""

    training_host: str = ""
    via: str = ""
    container: str = ""
    log: str = ""
    checkpoints: str = ""
    arguments: str = ""
    watch_only: bool = False
    eval_host: str = ""
    eval_container: str = ""
    root: str = ""
    target: str = ""
    prompts: str = ""
    hidden_states: tuple[str, ...] = ()
    python: str = ""
    drafter_config: str = ""
    baselines: tuple[str, ...] = ()
    look: tuple[str, ...] = ()


def wrong_path(said: str) -> str:
    """What is wrong with a path on a host; "" when nothing is."""
    return "" if said.startswith("/") else f"found {said!r}, expected an absolute path"


def baseline_place(text: str) -> tuple[str, str, str]:
    """Name, host and file of NAME=[HOST:]FILE; the host is "" where the file lies here. Raises ConfigError."""
    name, _, place = text.partition("=")
    host, _, file = place.partition(":") if not place.startswith("/") else ("", "", place)
    if not name or wrong_path(file):
        raise ConfigError(f"--baseline: found {text!r}, expected NAME=/path here, or NAME=HOST:/path")
    return name, host, file


def check_flags(wishes: Wishes) -> None:
    """Before anybody is asked anything. Raises ConfigError naming the flag."""
    for key in ("log", "checkpoints", "arguments", "root", "target", "prompts", "drafter_config"):
        value = getattr(wishes, key)
        if value and (trouble := wrong_path(value)):
            raise ConfigError(f"--{key.replace('_', '-')}: {trouble}")
    for flag, values in (("--hidden-states", wishes.hidden_states), ("--look", wishes.look)):
        for value in values:
            if trouble := wrong_path(value):
                raise ConfigError(f"{flag}: {trouble}")
    for key in ("via", "eval_host", *(() if wishes.via else ("training_host",))):
        if (value := getattr(wishes, key)) and (trouble := wrong_host(value)):
            raise ConfigError(f"--{key.replace('_', '-')}: {trouble}")
    for text in wishes.baselines:
        host, file = baseline_place(text)[1:]
        if not host and not Path(file).is_file():
            name = text.partition("=")[0]
            sentence = f"--baseline: {file} is no file on this machine"
            raise ConfigError(f"{sentence}; one on a host is named {name}=HOST:{file}")
    if wishes.watch_only and wishes.eval_host:
        raise ConfigError("--watch-only: given beside --eval-host; leave one of them out")
