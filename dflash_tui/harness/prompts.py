"""The prompt set: a JSONL file, one object a line: `id`, `prompt` (the text the target is given) and, where the set
was tokenised already, `token_ids`."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

from dflash_tui.harness.errors import HarnessError

_NAME = re.compile(r"[\w][\w.@+ -]{0,199}")


@dataclass(frozen=True)
class Prompt:
    """`sha256` is of the text's UTF-8 bytes; `token_ids` is None where the set holds text only."""

    id: str
    text: str
    sha256: str
    token_ids: tuple[int, ...] | None


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """The set in file order. Raises HarnessError naming file and line."""
    try:
        content = path.read_text(encoding="utf-8")
    except OSError as error:
        raise HarnessError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise HarnessError(f"{path}: not UTF-8 at byte {error.start}") from error
    found: list[Prompt] = []
    for number, line in enumerate(content.split("\n"), start=1):
        if line.strip():
            found.append(_prompt(line, f"{path}:{number}"))
    seen: set[str] = set()
    for prompt in found:
        if prompt.id in seen:
            raise HarnessError(f"{path}: prompt id {prompt.id!r} appears twice; ids name files and must differ")
        seen.add(prompt.id)
    if not found:
        raise HarnessError(f"{path}: no prompts in it")
    return tuple(found)


def _prompt(line: str, where: str) -> Prompt:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise HarnessError(f"{where}: not JSON ({error})") from error
    if not isinstance(data, dict) or not isinstance(data.get("id"), str) or not isinstance(data.get("prompt"), str):
        raise HarnessError(f'{where}: expected an object with the strings "id" and "prompt"')
    if not _NAME.fullmatch(data["id"]):
        raise HarnessError(f"{where}: id {data['id'][:60]!r} cannot name a file; use letters, digits, . _ - + @")
    ids = data.get("token_ids")
    if ids is not None and not (isinstance(ids, list) and ids and all(type(i) is int and i >= 0 for i in ids)):
        raise HarnessError(f'{where}: "token_ids" must be a non-empty list of token numbers')
    text: str = data["prompt"]
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return Prompt(data["id"], text, digest, None if ids is None else tuple(ids))
