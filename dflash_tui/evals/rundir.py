"""Run directories: created exclusively, filled by link, never reused."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from dflash_tui.evals.errors import EvaluationError
from dflash_tui.hosts.base import CommandFailed, FileMissing, Host, HostError
from dflash_tui.records.codec import dumps
from dflash_tui.records.manifest import Manifest

LinkMethod = Literal["hardlink", "copy"]
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Linked:
    """`path` is relative to the run directory."""

    path: str
    method: LinkMethod


def run_name(training: str, step: int | None, preset: str, block_size: int, moment: datetime) -> str:
    """A run id that sorts by training, step and time and is safe as a folder name."""
    what = f"step{step}" if step is not None else "drafter"
    stamp = moment.strftime("%Y%m%dT%H%M%SZ")
    return _UNSAFE.sub("-", f"{training}-{what}-{preset}-b{block_size}-{stamp}").strip("-.")


async def create_run(host: Host, root: str, name: str) -> tuple[str, str]:
    """Create ``<root>/runs/<name>``; a taken name gets a suffix. Returns the run id and its absolute folder."""
    parent = posixpath.join(root, "runs")
    await host.make_folder(parent)
    for attempt in range(1, 100):
        run_id = name if attempt == 1 else f"{name}-{attempt}"
        folder = posixpath.join(parent, run_id)
        if await _exists(host, folder):
            continue
        try:
            await host.make_folder(folder, exclusive=True)
        except HostError:
            if await _exists(host, folder):
                continue
            raise
        return run_id, folder
    raise EvaluationError(f"{host.name}:{parent}: 99 runs are already called {name}; move some away")


async def link_checkpoint(host: Host, folder: str, names: Sequence[str], run_dir: str) -> Linked:
    """Hard-link a checkpoint's files into the run, so that what was evaluated stays what it was.

    Where a hard link is impossible (another filesystem), the file is copied (``cp --reflink=auto``) and that is said. A
    symbolic link (as in the Hugging Face cache) stands for the file that it leads to.
    """
    base = posixpath.join(run_dir, "checkpoint")
    await host.make_folder(base)
    method: LinkMethod = "hardlink"
    for name in names:
        source, target = posixpath.join(folder, name), posixpath.join(base, name)
        if "/" in name:
            await host.make_folder(posixpath.dirname(target))
        source = await real_path(host, source)
        try:
            await host.run(["ln", source, target])
        except CommandFailed:
            method = "copy"
            await _copy(host, source, target)
    single = f"checkpoint/{names[0]}" if len(names) == 1 else "checkpoint"
    return Linked(single, method)


async def real_path(host: Host, path: str) -> str:
    """Where a file really lies. A hard link to a symbolic link would be one more symbolic link."""
    if (await host.stat(path, follow=False)).kind != "link":
        return path
    return (await host.run(["readlink", "-f", path])).text.removesuffix("\n")


async def write_manifest(host: Host, run_dir: str, manifest: Manifest) -> None:
    """Write ``manifest.json``, the request that the harness carries out."""
    await host.write(posixpath.join(run_dir, "manifest.json"), dumps(manifest, indent=1).encode())


def keep_manifest(home: Path, manifest: Manifest) -> None:
    """The same at home, before anything runs, so that no run is ever unknown to this workstation."""
    part = home / f".manifest.json.{os.getpid()}.part"
    part.write_text(dumps(manifest, indent=1), encoding="utf-8")
    part.replace(home / "manifest.json")


async def _copy(host: Host, source: str, target: str) -> None:
    try:
        await host.run(["cp", "--reflink=auto", source, target], timeout=3600)
    except CommandFailed:
        await host.run(["cp", source, target], timeout=3600)


async def _exists(host: Host, path: str) -> bool:
    try:
        await host.stat(path)
    except FileMissing:
        return False
    return True
