from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

from dflash_tui.evals.ship import harness_file, ship
from dflash_tui.hosts.local import LocalHost


async def test_the_harness_is_uploaded_once_under_its_content_s_name(tmp_path: Path) -> None:
    path = Path(await ship(LocalHost("lab"), str(tmp_path)))
    assert hashlib.sha256(path.read_bytes()).hexdigest() in path.name
    first = path.stat()
    assert await ship(LocalHost("lab"), str(tmp_path)) == str(path)
    assert path.stat().st_mtime_ns == first.st_mtime_ns


async def test_a_torn_upload_is_replaced(tmp_path: Path) -> None:
    path = Path(await ship(LocalHost("lab"), str(tmp_path)))
    path.write_bytes(path.read_bytes()[:100])
    await ship(LocalHost("lab"), str(tmp_path))
    assert path.read_bytes() == harness_file().data


async def test_one_that_was_tampered_with_never_runs(tmp_path: Path) -> None:
    path = Path(await ship(LocalHost("lab"), str(tmp_path)))
    path.write_bytes(bytes(len(harness_file().data)))
    await ship(LocalHost("lab"), str(tmp_path))
    assert path.read_bytes() == harness_file().data


def test_the_same_sources_give_the_same_bytes_in_another_process() -> None:
    code = "from dflash_tui.evals.ship import harness_file; print(harness_file().sha256)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == harness_file().sha256


async def test_it_holds_the_rooms_that_a_host_needs_and_no_other(tmp_path: Path) -> None:
    path = await ship(LocalHost("lab"), str(tmp_path))
    with zipfile.ZipFile(path) as archive:
        rooms = {name.split("/")[1] for name in archive.namelist() if name.count("/") > 1}
    assert rooms == {"harness", "measure", "checkpoints", "records"}


async def test_it_runs_on_a_bare_interpreter_and_tells_usage(tmp_path: Path) -> None:
    path = await ship(LocalHost("lab"), str(tmp_path))
    done = subprocess.run([sys.executable, "-I", "-S", path, "nonsense"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "survey" in done.stderr
