"""LINKED_FILE_CHANGED: the checkpoint in the run directory is not what it was when it was linked."""

from __future__ import annotations

from typing import Any

from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results import evidence

_WHAT = {
    "inode": "is another file",
    "size": "has another size",
    "header_sha256": "holds other bytes",
    "mtime": "was written to",
}


def find(evaluation: Evaluation) -> tuple[Finding, ...]:
    """`void` where inode, size, time or bytes differ; values are the names of what changed, by file."""
    before, after = (evidence.value(evaluation, kind) for kind in ("link.record", "link.now"))
    if not isinstance(before, dict) or not isinstance(after, dict):
        return ()
    changed = {
        str(name): tuple(key for key in _WHAT if _of(before, name, key) != _of(after, name, key))
        for name in sorted(before, key=str)
    }
    found = {name: keys for name, keys in changed.items() if keys}
    if not found:
        return ()
    said = "; ".join(f"{name} {', '.join(_WHAT[key] for key in keys)}" for name, keys in found.items())
    sentence = f"The linked checkpoint changed while it was evaluated: {said}. The values are of no one checkpoint."
    sources = tuple(evidence.source(evaluation, kind) for kind in ("link.record", "link.now"))
    values = tuple(part for name, keys in found.items() for part in (name, *keys))
    return (Finding("LINKED_FILE_CHANGED", "void", sentence, values, sources),)


def _of(files: dict[Any, Any], name: Any, key: str) -> Any:
    record = files.get(name)
    return record.get(key) if isinstance(record, dict) else None
