"""Demo worlds for tests: with stand-in files where what is in them does not matter, and how to find what one left."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from dflash_tui.demo.reaper import MARK


def stand_in(folder: Path) -> Path:
    """A folder shaped like the shipped data, a few bytes in all."""
    for name in ("target", "baseline", "hidden_states"):
        (folder / name).mkdir(parents=True)
    (folder / "target" / "config.json").write_text("{}")
    (folder / "baseline" / "config.json").write_text("{}")
    (folder / "hidden_states" / "fizzbuzz.safetensors").write_bytes(b"\0" * 64)
    (folder / "rows.jsonl").write_text("")
    (folder / "prompts.jsonl").write_text('{"id": "fizzbuzz", "prompt": "Write fizzbuzz."}\n')
    return folder


def archive(path: Path, program: str) -> str:
    """A .pyz whose program is this; its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("__main__.py", program)
    return str(path)


def marked(base: Path) -> set[int]:
    """Pids of the living processes that carry the mark of a demo below `base`."""
    found = set()
    mark = f"{MARK}={base}/".encode()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                words = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(word.startswith(mark) for word in words):
                found.add(int(entry))
    return found
