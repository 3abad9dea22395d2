"""A config file put where it belongs: whole or not at all, readable by its user alone, never over another one."""

from __future__ import annotations

import os
import secrets
from datetime import UTC, datetime
from pathlib import Path

from dflash_tui.config.content import ConfigError


def refuse_existing(path: Path) -> None:
    """Raise ConfigError when there is a file at `path`."""
    if path.exists() or path.is_symlink():
        raise ConfigError(
            f"{path}: there is a config already; write another with --output PATH, or replace it with --replace (the "
            "old one is kept beside it)"
        )


def refuse_unwritable(path: Path) -> None:
    """Raise ConfigError when nothing could be put at `path`, before anybody answers questions for it."""
    folder = os.path.dirname(os.path.realpath(path))
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(
            f"{path}: {folder} is no folder that this user may write to; mend that, or write the config elsewhere with "
            "--output PATH"
        )


def place(text: str, path: Path, *, replace: bool) -> str:
    """Write the file; with `replace` an older one is kept beside it under the name that is returned ("" otherwise).
    Raises ConfigError when there is one and it may not be replaced, OSError when the folder can't be written."""
    path = Path(os.path.realpath(path)) if replace else path  # where the config is a link, what it names is replaced
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        kept = _set_aside(path) if replace else ""
        if kept:
            os.replace(part, path)
        else:
            _link(part, path)
    finally:
        part.unlink(missing_ok=True)
    return kept


def _link(part: Path, path: Path) -> None:
    """Give the finished file its name; a link, unlike a rename, never replaces what came there meanwhile."""
    try:
        os.link(part, path)
    except FileExistsError:
        refuse_existing(path)
        raise


def _set_aside(path: Path) -> str:
    """Another name for the file that is there, which stays where it is until it is replaced."""
    kept = path.with_name(f"{path.name}.bak-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
    try:
        os.link(path, kept)
    except FileNotFoundError:
        return ""
    return str(kept)
