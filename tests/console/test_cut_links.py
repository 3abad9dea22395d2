"""What is made of a link that breaks, or a run directory that goes, at the worst moment."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dflash_tui.console import events as happened
from dflash_tui.console.acts.evaluate import evaluate
from dflash_tui.console.console import Console
from dflash_tui.evals.errors import RunEnded
from dflash_tui.hosts.ssh import SshHost
from dflash_tui.records.codec import loads
from dflash_tui.records.process import ProcessRecord
from tests.console.world import Bench, bench
from tests.sshd import Sshd, running_sshd


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running_sshd(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture
async def tiny(tmp_path: Path, server: Sshd) -> AsyncIterator[Bench]:
    """The evaluation host behind an sshd; its Python waits for the file `go` before it evaluates."""
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *" evaluate "*) touch {tmp_path}/begun\n'
        f'while [ ! -e {tmp_path}/go ]; do sleep 0.05; done;; esac\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    made = bench(tmp_path, python=str(python))
    made.save(4000)
    hosts = {**made.console.hosts, "lab": SshHost("lab", server.address)}
    made.console = Console(made.console.config, made.console.store, hosts, told=made.told.append)
    yield made
    await made.console.close()


async def appears(path: Path) -> None:
    async with asyncio.timeout(60):
        while not path.exists():
            await asyncio.sleep(0.01)


async def test_a_link_cut_while_the_run_is_launched_neither_loses_it_nor_starts_it_twice(
    tiny: Bench, server: Sshd
) -> None:
    job = asyncio.create_task(evaluate(tiny.console))
    await appears(tiny.root / "begun")
    server.kill_sessions()
    (tiny.root / "go").touch()
    done = await asyncio.wait_for(job, 60)
    assert done.evaluation.pooled.blocks == 45
    assert [path.name for path in (tiny.root / "lab" / "eval" / "runs").iterdir()] == [done.run_id]
    said = [event.sentence for event in tiny.told if isinstance(event, happened.Noticed)]
    assert any(f"whether {done.run_id} has begun is asked" in sentence for sentence in said)


async def test_leaving_while_the_run_is_launched_lets_the_launch_end(tiny: Bench) -> None:
    job = asyncio.create_task(evaluate(tiny.console))
    await appears(tiny.root / "begun")
    job.cancel()
    await asyncio.sleep(0)
    (tiny.root / "go").touch()
    await asyncio.wait({job}, timeout=60)
    assert job.cancelled()
    (run_dir,) = (tiny.root / "lab" / "eval" / "runs").iterdir()
    assert (run_dir / "process.json").exists()
    done = await asyncio.wait_for(evaluate(tiny.console), 60)
    assert (done.run_id, done.existing) == (run_dir.name, True)


async def test_a_run_directory_taken_away_while_it_is_followed_is_a_lost_run(tiny: Bench) -> None:
    (tiny.root / "go").touch()
    job = asyncio.create_task(evaluate(tiny.console))
    await appears(tiny.root / "begun")
    run_dir = Path(tiny.console.state.evaluation.run_dir)
    await appears(run_dir / "process.json")
    process = loads(ProcessRecord, (run_dir / "process.json").read_bytes(), "process.json")
    os.kill(process.pid, signal.SIGSTOP)
    shutil.rmtree(run_dir)
    with pytest.raises(RunEnded, match="is not there any more"):
        await asyncio.wait_for(job, 60)
    os.kill(process.pid, signal.SIGKILL)
    assert tiny.console.state.evaluation.state == "lost"
    assert [run.exit.state for run in tiny.console.store.runs() if run.exit] == ["lost"]
