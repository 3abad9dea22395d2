"""Result files as evaluations. What a file is, its content decides, never its name."""

from __future__ import annotations

import difflib
import hashlib
import json
import stat
from pathlib import Path
from typing import Any, Protocol

from dflash_tui.records.result import Evaluation
from dflash_tui.results.errors import NotRecognised, ResultDamaged, ResultError
from dflash_tui.results.evaluation import from_run
from dflash_tui.results.importers import own, story


class Importer(Protocol):
    """A module of this folder. `EXPECTED` says, for a person, which keys it looks for."""

    EXPECTED: str

    def recognises(self, data: Any) -> bool:
        """True when the JSON data is of this importer's shape."""

    def read(self, data: dict[str, Any], path: Path, name: str, sha256: str) -> Evaluation:
        """The evaluation in it. Raises ResultDamaged."""


NAMED: dict[str, Importer] = {"own": own, "story": story}
_IMPORTERS: tuple[Importer, ...] = tuple(NAMED.values())
_LIMIT = 256 * 1024 * 1024  # bytes: a result file is small, and this one is read whole


def import_file(path: Path, name: str) -> Evaluation:
    """The evaluation in a result file or a run folder, called `name`.

    Raises NotRecognised with the keys found and those expected, ResultDamaged when the content is broken.
    """
    if path.is_dir():
        if not (path / "manifest.json").exists():
            raise NotRecognised(f"{path}: a folder without manifest.json is no run; name the result file in it")
        return own.named(from_run(path), name)
    content = _content(path)
    if (run := own.run_around(path, content)) is not None:
        return own.named(from_run(run), name)
    return read_content(path, content, name)


def import_as(path: Path, name: str, importer: str) -> Evaluation:
    """The evaluation in a result file of a script of the user's own, never in what lies around it. `importer` "" means
    that its content decides. Raises as `import_file`."""
    known_importer(importer)
    return read_content(path, _content(path), name, importer)


def known_importer(name: str) -> None:
    """Raises ResultError with the nearest name for an importer that does not exist; "" is none in particular."""
    if name and name not in NAMED:
        near = difflib.get_close_matches(name, NAMED, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(NAMED)}"
        raise ResultError(f"harness.import_as: found {name!r}, which is no importer; {hint}")


def read_content(path: Path, content: bytes, name: str, importer: str = "") -> Evaluation:
    """The evaluation in a result file's bytes. Raises NotRecognised, ResultDamaged."""
    data = _json(path, content)
    wanted = (NAMED[importer],) if importer else _IMPORTERS
    for each in wanted:
        if each.recognises(data):
            return each.read(data, path, name, hashlib.sha256(content).hexdigest())
    found = f"keys {_keys(data)}" if isinstance(data, dict) else f"a JSON {_kind(data)}"
    expected = "; or ".join(importer.EXPECTED for importer in wanted)
    raise NotRecognised(f"{path}: not a result that can be read: found {found}, expected {expected}")


def _content(path: Path) -> bytes:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # a device or a pipe may never end
            raise NotRecognised(f"{path}: no regular file, expected a result file or a run folder")
        if (size := found.st_size) > _LIMIT:
            raise NotRecognised(f"{path}: {size} bytes is too large for a result, expected JSON under 256 MiB")
        return path.read_bytes()
    except OSError as error:
        raise ResultDamaged(f"{path}: can't be read ({error.strerror})") from error


def _json(path: Path, content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise NotRecognised(f"{path}: not JSON ({error}), expected a result file") from error


def _keys(data: dict[str, Any]) -> str:
    shown = [repr(key[:60]) for key in list(data)[:12]]
    return ", ".join(shown) + (f" and {len(data) - 12} more" if len(data) > 12 else "") if shown else "none"


def _kind(data: Any) -> str:
    return {list: "list", str: "text", bool: "boolean", type(None): "null"}.get(type(data), "number")
