"""What people do today: the programs that the product is measured against."""

from __future__ import annotations

from pathlib import Path

from tests.bench.transfer.cost import Step
from tests.bench.transfer.world import DESTINATION, SOURCE


def cat_here(config: Path, path: Path, here: Path) -> list[Step]:
    """One stream of OpenSSH into a file of this machine."""
    return [Step((_reading(config, path),), here)]


def cat_to_cat(config: Path, path: Path, arrived: Path) -> list[Step]:
    """Two of them, joined by a pipe."""
    return [Step((_reading(config, path), ("ssh", "-F", str(config), DESTINATION, f"cat > {arrived}")))]


def rsync_twice(config: Path, path: Path, here: Path, arrived: Path) -> list[Step]:
    """To a file of this machine and on from there."""
    rsync = ("rsync", "-W", "-e", f"ssh -F {config}")
    return [
        Step(((*rsync, f"{SOURCE}:{path}", str(here)),)),
        Step(((*rsync, str(here), f"{DESTINATION}:{arrived}"),)),
    ]


def scp_through(config: Path, path: Path, arrived: Path) -> list[Step]:
    """Through this machine, by SFTP at both ends."""
    return [Step((("scp", "-3", "-q", "-F", str(config), f"{SOURCE}:{path}", f"{DESTINATION}:{arrived}"),))]


def _reading(config: Path, path: Path) -> tuple[str, ...]:
    return ("ssh", "-F", str(config), SOURCE, f"cat {path}")
