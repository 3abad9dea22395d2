"""Whether the newest checkpoint could be evaluated, judged where it lies: a few reads, nothing moved."""

from __future__ import annotations

import asyncio
import json
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dflash_tui.checkpoints.audit import audit
from dflash_tui.checkpoints.errors import CheckpointError, SettingsMissing
from dflash_tui.checkpoints.opening import read_configs, read_structure
from dflash_tui.checkpoints.settings import resolve_settings
from dflash_tui.checkpoints.structure import Structure
from dflash_tui.console.acts.found import SIDECARS
from dflash_tui.console.acts.slimming import with_sidecars
from dflash_tui.console.acts.survey import of_this_config
from dflash_tui.console.checks.items import Group, Items
from dflash_tui.console.checks.paths import where
from dflash_tui.console.console import Console
from dflash_tui.hosts.base import FileMissing, Host, HostError, HostUnreachable
from dflash_tui.hosts.several import stats_of
from dflash_tui.records.checkpoint import SavedCheckpoint
from dflash_tui.records.facts import Fact
from dflash_tui.records.settings import DrafterSettings
from dflash_tui.watch.remote_files import RemoteFiles

GROUP = Group("evaluation")
LARGEST_JSON = 64 << 20
_SOURCED = ", every setting has a source"

Configs = list[tuple[str, dict[str, Any]]]


async def drafter(console: Console, checkpoint: SavedCheckpoint) -> tuple[Items, DrafterSettings | None]:
    """What the weights are, and the settings that they can't tell. Both hosts were reached."""
    own: Configs = []
    if path := str(console.config.drafter.get("config", "")):
        try:
            own = [(path, await _json(console.evaluation_host, path))]
        except FileMissing:
            sentence = await where(console.evaluation_host, path, "the drafter's config.json (drafter.config)")
            return [GROUP.fail("drafter", sentence)], None
        except HostUnreachable as error:
            return [GROUP.fail("drafter", str(error))], None
        except (HostError, ValueError) as error:
            sentence = f"{console.evaluation_host.name}:{path} is no JSON object ({error}); expected a config.json"
            return [GROUP.fail("drafter", f"{sentence} (drafter.config)")], None
    files = await remote_files(console.training_host, checkpoint.folder, checkpoint.files)
    place = f"{checkpoint.host}:{checkpoint.path}"
    try:
        structure, configs = await asyncio.to_thread(_read, files)
        found = audit(structure, configs[0][1] if configs else None)
        if found.family != "dflash":
            sentence = f"{place} has the keys of {found.family}, expected a dflash v1 drafter"
            return [GROUP.fail("drafter", f"{sentence}: training.checkpoints should hold one")], None
        if broken := (*found.missing, *found.mismatched):
            sentence = f"{place} has {len(broken)} tensors that are missing or of another shape: "
            return [GROUP.fail("drafter", f"{sentence}{'; '.join(broken[:3])}")], None
        settings = await _settings(console, structure, [*configs, *own])
    except SettingsMissing as error:
        return [GROUP.fail("drafter", of_this_config(console, f"{checkpoint.host}: {error}"))], None
    except CheckpointError as error:
        return [GROUP.fail("drafter", f"{place}: {error}")], None
    size = console.evaluation.block_size or settings.block_size
    taps = " ".join(map(str, settings.taps))
    sentence = f"{place}: {settings.num_hidden_layers} layers, block size {size}, taps {taps}{_SOURCED}"
    return [GROUP.ok("drafter", sentence)], settings


def disagreeing(items: Items, settings: DrafterSettings | None, facts: Sequence[Fact]) -> Items:
    """The drafter's item as a warning where the training says otherwise of itself (`facts`): both values, and who says
    each. A config of another drafter makes a wrong number, not an error."""
    if settings is None:
        return items
    used = {"block_size": settings.block_size, "mask_token_id": settings.mask_token_id, "taps": list(settings.taps)}
    names = {"block_size": "block size", "mask_token_id": "mask token", "taps": "taps"}
    said = []
    for key, value in used.items():
        told = [fact for fact in facts if fact.kind == f"train.{key}"]
        other = next((fact for fact in reversed(told) if fact.value != value), None)
        if other is not None:
            mine, its = (" ".join(map(str, item)) if isinstance(item, list) else item for item in (value, other.value))
            said.append(f"{names[key]} {mine} ({settings.sources.get(key, 'its weights')}), {its} ({other.source})")
    if not said:
        return items
    doubt = f"it was trained otherwise than it will be evaluated: {'; '.join(said)}; is drafter.config that of another?"
    return [
        replace(item, state="warn", sentence=f"{item.sentence.removesuffix(_SOURCED)}; {doubt}")
        if item.name == "drafter" and item.state == "ok"
        else item
        for item in items
    ]


async def remote_files(host: Host, folder: str, names: Sequence[str]) -> RemoteFiles:
    """A checkpoint's files and what lies beside them that says what weights can't."""
    known = await with_sidecars(host, folder, tuple(names), SIDECARS)
    stats = await stats_of(host, [posixpath.join(folder, name) for name in known])
    return RemoteFiles(host, folder, {name: stat.size for name, stat in zip(known, stats, strict=True)})


def _read(files: RemoteFiles) -> tuple[Structure, Configs]:
    return read_structure(files), read_configs(files)


async def _settings(console: Console, structure: Structure, configs: Configs) -> DrafterSettings:
    """As the harness resolves them on its host: a vocabulary of unknown size is the target's."""
    overrides: Mapping[str, Any] = {key: value for key, value in console.config.drafter.items() if key != "config"}
    try:
        return resolve_settings(structure, configs, overrides)
    except SettingsMissing as error:
        if error.fields != ("vocab_size",):
            raise
        path = posixpath.join(console.evaluation.target, "config.json")
        try:
            described = await _json(console.evaluation_host, path)
        except (HostError, ValueError):
            raise error from None  # the target's own check says what is wrong with it
        text = described.get("text_config")
        size = (text if isinstance(text, dict) else described).get("vocab_size")
        if not isinstance(size, int):
            raise
        return resolve_settings(structure, [*configs, (path, {"vocab_size": size})], overrides)


async def _json(host: Host, path: str) -> dict[str, Any]:
    """A JSON object on a host. Raises ValueError, HostError."""
    size = (await host.stat(path)).size
    if size > LARGEST_JSON:
        raise ValueError(f"{size} bytes")
    data = json.loads(await host.read(path, 0, size))
    if not isinstance(data, dict):
        raise ValueError(f"a JSON {type(data).__name__}")
    return data
