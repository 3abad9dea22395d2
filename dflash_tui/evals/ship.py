"""The harness as one content-addressed file, uploaded once to each evaluation host."""

from __future__ import annotations

import hashlib
import io
import posixpath
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from dflash_tui.hosts.base import FileMissing, Host, ReadShort

ROOMS = ("harness", "measure", "checkpoints", "records")
_EPOCH = (2020, 1, 1, 0, 0, 0)  # a fixed time stamp: the same sources must give the same bytes
_MAIN = "import sys\n\nfrom dflash_tui.harness.__main__ import main\n\nsys.exit(main(sys.argv[1:]))\n"


@dataclass(frozen=True)
class HarnessFile:
    """The zipapp: its bytes and their SHA-256, which is its name on a host."""

    data: bytes
    sha256: str

    @property
    def name(self) -> str:
        """The file's name on a host."""
        return f"harness-{self.sha256}.pyz"


@cache
def harness_file() -> HarnessFile:
    """Build the zipapp from the installed package (wheel, sdist or checkout)."""
    package = files("dflash_tui")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "__main__.py", _MAIN.encode())
        _add(archive, "dflash_tui/__init__.py", (package / "__init__.py").read_bytes())
        for room in ROOMS:
            for name, data in _sources(package / room, f"dflash_tui/{room}"):
                _add(archive, name, data)
    data = buffer.getvalue()
    return HarnessFile(data, hashlib.sha256(data).hexdigest())


async def ship(host: Host, root: str) -> str:
    """The harness's path on the host, uploading it if it is not there yet, or is there with other bytes: what its name
    promises is what runs. Raises HostError."""
    harness = harness_file()
    folder = posixpath.join(root, ".dflash")
    path = posixpath.join(folder, harness.name)
    try:
        if await host.read(path, 0, (await host.stat(path)).size) == harness.data:
            return path
    except (FileMissing, ReadShort):
        pass
    await host.make_folder(folder)
    await host.write(path, harness.data)
    return path


def _sources(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for item in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if item.is_dir() and item.name != "__pycache__":
            yield from _sources(item, f"{prefix}/{item.name}")
        elif item.name.endswith(".py"):
            yield f"{prefix}/{item.name}", item.read_bytes()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    archive.writestr(info, data)
