"""What the flags of `init` say."""

from __future__ import annotations

from dataclasses import dataclass

from dflash_tui.config import ConfigError


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
    if wishes.watch_only and wishes.eval_host:
        raise ConfigError("--watch-only: given beside --eval-host; leave one of them out")
