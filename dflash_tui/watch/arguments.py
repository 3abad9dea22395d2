"""Facts about a training, each with the place it was read: its arguments file, its log, its checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from dflash_tui.hosts.base import Host, HostError, HostUnreachable, ReadShort
from dflash_tui.records.checkpoint import SavedCheckpoint
from dflash_tui.records.facts import Fact, Source
from dflash_tui.watch.progress import Progress

ARGUMENTS_LIMIT = 4 << 20  # bytes; a trainer's arguments are some kilobytes
_BLOCK_KEYS = ("block_size", "draft_block_size", "block_length", "block_len")
_MASK_KEYS = ("mask_token_id", "draft_mask_token_id", "dflash_mask_token_id", "mask_id")
_TAP_KEYS = ("target_layer_ids", "draft_target_layer_ids", "dflash_target_layer_ids")
_OF_THE_TARGET = ("target", "verifier")  # objects that begin so describe another model than the drafter
_DEPTH = 5


@dataclass(frozen=True)
class Arguments:
    """A trainer's arguments file. `problem`: one sentence when it can't be used, or is not there."""

    host: str
    path: str
    values: Mapping[str, Any]
    problem: str = ""


async def read_arguments(host: Host, path: str) -> Arguments | None:
    """The arguments at `path`, None when no path is configured. Raises HostUnreachable."""
    if not path:
        return None
    try:
        size = (await host.stat(path)).size
        if size > ARGUMENTS_LIMIT:
            return Arguments(host.name, path, {}, f"{path}: {size} bytes, expected a small JSON object")
        data = json.loads((await host.read(path, 0, size)).decode("utf-8"))
    except (ReadShort, ValueError, RecursionError) as error:
        return Arguments(host.name, path, {}, f"{path}: not a JSON text ({error})")
    except HostUnreachable:
        raise
    except HostError as error:
        return Arguments(host.name, path, {}, str(error))
    if not isinstance(data, dict):
        return Arguments(host.name, path, {}, f"{path}: found a {type(data).__name__}, expected a JSON object")
    return Arguments(host.name, path, data)


def training_facts(
    host: str,
    log_path: str,
    progress: Progress | None,
    checkpoints: Sequence[SavedCheckpoint],
    arguments: Arguments | None,
    *,
    now: float,
) -> tuple[Fact, ...]:
    """What is known of the training at `now` (POSIX seconds): kinds ``train.block_size`` (one fact a source),
    ``train.mask_token_id`` and ``train.taps`` (of the arguments), ``train.live`` and ``train.newest_saved``; a kind
    that nothing tells is absent."""
    read_at = iso(now)
    facts: list[Fact] = []
    if arguments is not None:
        for kind, keys, reading in _SETTINGS:
            for where, value in _named(arguments.values, keys, reading, "", 0):
                facts.append(Fact(kind, value, Source(arguments.host, arguments.path, where), read_at))
    if progress is not None and progress.block_size is not None and progress.block_size_line is not None:
        source = Source(host, log_path, progress.block_size_line.where)
        facts.append(Fact("train.block_size", progress.block_size, source, read_at))
    if progress is not None and progress.step is not None and progress.last_step_line is not None:
        line = progress.last_step_line
        live = {
            "step": progress.step,
            "total": progress.total,
            "line": line.text,
            "line_number": line.number,
            "at": None if progress.last_step_at is None else iso(progress.last_step_at),
        }
        facts.append(Fact("train.live", live, Source(host, log_path, line.where), read_at))
    complete = [item for item in checkpoints if item.completeness == "complete" and item.step is not None]
    if complete:
        newest = complete[-1]
        facts.append(Fact("train.newest_saved", newest.step, Source(newest.host, newest.path), read_at))
    return tuple(facts)


def iso(seconds: float) -> str:
    """POSIX seconds as ISO 8601 UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _named(
    values: Mapping[str, Any], keys: Sequence[str], reading: Callable[[Any], Any], path: str, depth: int
) -> Iterator[tuple[str, Any]]:
    """The values under any of `keys` that can be read, with the dotted place of each."""
    for key, value in values.items():
        where = f"{path}.{key}" if path else str(key)
        name = str(key).lstrip("-").replace("-", "_")
        if isinstance(value, dict) and depth < _DEPTH:
            if keys is _BLOCK_KEYS or not name.startswith(_OF_THE_TARGET):
                yield from _named(value, keys, reading, where, depth + 1)
        elif name in keys and (read := reading(value)) is not None:
            yield where, read


def _positive(value: Any) -> int | None:
    number = _whole(value)
    return number if number else None


def _whole(value: Any) -> int | None:
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 10:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _ids(value: Any) -> list[int] | None:
    """Layer ids, as a list or as a command line spells them: "1,16,31" or "[1, 16, 31]"."""
    if isinstance(value, str):
        value = value.strip().strip("[]()").replace(",", " ").split()
    if not isinstance(value, list) or not value:
        return None
    ids = [_whole(item) for item in value]
    return None if None in ids else [item for item in ids if item is not None]


_SETTINGS: tuple[tuple[str, tuple[str, ...], Callable[[Any], Any]], ...] = (
    ("train.block_size", _BLOCK_KEYS, _positive),
    ("train.mask_token_id", _MASK_KEYS, _whole),
    ("train.taps", _TAP_KEYS, _ids),
)
