"""Whether each configured baseline is there and can be read as what it is."""

from __future__ import annotations

import asyncio
import posixpath
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from dflash_tui.checkpoints.audit import audit
from dflash_tui.checkpoints.errors import CheckpointError
from dflash_tui.checkpoints.opening import read_configs, read_structure
from dflash_tui.config import BaselineConfig
from dflash_tui.console.acts.baselines import LARGEST_RESULT
from dflash_tui.console.checks.checkpoint import remote_files
from dflash_tui.console.checks.items import Group, Items, Reached, bounded
from dflash_tui.console.checks.paths import other_kind, where
from dflash_tui.console.console import Console
from dflash_tui.console.quantities import counted, megabytes
from dflash_tui.hosts.base import FileMissing, Host
from dflash_tui.records.checkpoint import Audit
from dflash_tui.results.errors import ResultError
from dflash_tui.results.importers import import_file
from dflash_tui.watch.remote_files import RemoteFiles

GROUP = Group("baselines")


async def look(console: Console, reached: Mapping[str, asyncio.Task[Reached]]) -> Items:
    """Every baseline at once."""
    looks = [_baseline(console, item, reached) for item in console.config.baselines]
    return [item for items in await asyncio.gather(*looks) for item in items]


async def _baseline(console: Console, baseline: BaselineConfig, reached: Mapping[str, asyncio.Task[Reached]]) -> Items:
    evaluation = console.config.evaluation
    name = baseline.host or (evaluation.host if baseline.drafter and evaluation is not None else "local")
    if name in reached and (cause := (await asyncio.shield(reached[name])).cause):
        return [GROUP.skip(baseline.name, cause)]
    host = console.host(name)
    look = _drafter if baseline.drafter else _result
    return await bounded(GROUP, baseline.name, lambda: look(host, baseline))


async def _result(host: Host, baseline: BaselineConfig) -> Items:
    path, key = baseline.file, f"baseline.{baseline.name}.file"
    try:
        found = await host.stat(path)
    except FileMissing:
        return [GROUP.fail(baseline.name, await where(host, path, f"a result file ({key})"))]
    if found.kind != "file":
        return [GROUP.fail(baseline.name, other_kind(host, path, found.kind, f"a result file ({key})"))]
    if found.size > LARGEST_RESULT:
        sentence = f"{host.name}:{path}: {megabytes(found.size)} is no result file, expected one ({key})"
        return [GROUP.fail(baseline.name, sentence)]
    data = await host.read(path, 0, found.size)
    with tempfile.TemporaryDirectory(prefix="dflash-check-") as folder:
        copy = Path(folder) / PurePosixPath(path).name
        copy.write_bytes(data)
        try:
            result = await asyncio.to_thread(import_file, copy, baseline.name)
        except ResultError as error:
            return [GROUP.fail(baseline.name, f"{host.name}:{str(error).replace(str(copy), path)} ({key})")]
    counts = counted(result.pooled.blocks, "block") if result.pooled.blocks else "no block counts"
    return [GROUP.ok(baseline.name, f"{host.name}:{path}: a result of {counts}")]


async def _drafter(host: Host, baseline: BaselineConfig) -> Items:
    path, key = baseline.drafter, f"baseline.{baseline.name}.drafter"
    try:
        found = await host.stat(path)
    except FileMissing:
        return [GROUP.fail(baseline.name, await where(host, path, f"a drafter, folder or weights file ({key})"))]
    if found.kind == "folder":
        folder, names = path, [entry.name for entry in await host.list(path) if entry.stat.kind in ("file", "link")]
    else:
        folder, last = posixpath.split(path)
        names = [last]
    try:
        audited = await asyncio.to_thread(_audited, await remote_files(host, folder, names))
    except CheckpointError as error:
        return [GROUP.fail(baseline.name, f"{host.name}:{path}: {error}; expected a drafter ({key})")]
    if audited.family != "dflash":
        sentence = f"{host.name}:{path} has the keys of {audited.family}, expected a dflash v1 drafter ({key})"
        return [GROUP.fail(baseline.name, sentence)]
    if baseline.config:
        try:
            await host.stat(baseline.config)
        except FileMissing:
            sentence = await where(host, baseline.config, f"its config.json (baseline.{baseline.name}.config)")
            return [GROUP.fail(baseline.name, sentence)]
    return [GROUP.ok(baseline.name, f"{host.name}:{path}: a dflash drafter, evaluated beside each checkpoint")]


def _audited(files: RemoteFiles) -> Audit:
    configs = read_configs(files)
    return audit(read_structure(files), configs[0][1] if configs else None)
