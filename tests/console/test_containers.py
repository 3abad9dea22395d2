"""Evaluations in containers: left running where the launcher leaves them, else held open; and what is said."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_tui.config import HostConfig
from dflash_tui.console import events as happened
from dflash_tui.console.acts import stop
from dflash_tui.console.acts.evaluate import evaluate
from dflash_tui.console.acts.reattach import left_running, reattach
from dflash_tui.console.console import Console
from dflash_tui.evals.errors import RunEnded
from dflash_tui.hosts.container import ContainerHost
from dflash_tui.hosts.local import LocalHost
from dflash_tui.records.codec import loads
from dflash_tui.records.process import ExitRecord, ProcessRecord
from tests.console.world import Bench, bench
from tests.launchers.boxes import Box, running_box
from tests.launchers.logind import Logind
from tests.sshd import processes_with

HELD = "ends when this console closes or the link breaks"


class InBox:
    """A bench whose evaluation host is the inside of a container."""

    def __init__(self, made: Bench, box: Box, attached: bool) -> None:
        self.bench, self.box = made, box
        self.item = HostConfig(name="lab", via="login", container=box.prefix(), attached=attached)
        self.console = made.console = self.another()

    def another(self) -> Console:
        """A console as it would be started next on the same workstation."""
        login = LocalHost("login")
        host = ContainerHost(login, self.item.container, "lab", attached=self.item.attached)
        old = self.bench.console
        config = replace(old.config, hosts={"lab": self.item, "login": HostConfig(name="login")})
        return Console(config, old.store, {**old.hosts, "lab": host, "login": login}, told=self.bench.told.append)

    async def begun(self) -> tuple[asyncio.Task[object], Path]:
        """An evaluation under way, held by SIGSTOP, and its run directory."""
        job: asyncio.Task[object] = asyncio.create_task(evaluate(self.console))
        await until(lambda: job.done() or self.bench.of(happened.EvaluationStarted))
        run_dir = Path(self.console.state.evaluation.run_dir)
        await until(lambda: job.done() or (run_dir / "process.json").exists())
        self.send(run_dir, signal.SIGSTOP)
        return job, run_dir

    def pid(self, run_dir: Path) -> int:
        """The run's process as this machine numbers it; 0 when it is gone."""
        inside = loads(ProcessRecord, (run_dir / "process.json").read_bytes(), "process.json").pid
        for pid in processes_with(str(run_dir)):
            with suppress(OSError):
                status = Path(f"/proc/{pid}/status").read_text().splitlines()
                seen = next(line.split()[1:] for line in status if line.startswith("NSpid:"))
                if len(seen) > 1 and int(seen[-1]) == inside:
                    return pid
        return 0

    def send(self, run_dir: Path, number: signal.Signals) -> None:
        pid = self.pid(run_dir)
        above = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        os.kill(pid, number)
        if Path(f"/proc/{above}/comm").read_text() != "nsenter\n":
            return
        # It stops with what it has started, a little later.
        deadline = time.monotonic() + 10
        while number == signal.SIGSTOP and time.monotonic() < deadline:
            if Path(f"/proc/{above}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T":
                return
            time.sleep(0.001)
        os.kill(above, signal.SIGCONT)

    @property
    def notices(self) -> list[str]:
        return [event.sentence for event in self.bench.told if isinstance(event, happened.Noticed)]


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def in_box(tmp_path: Path, tool: str, attached: bool = False) -> AsyncIterator[InBox]:
    (tmp_path / "box").mkdir()
    with running_box(tmp_path / "box", tool, Path("/")) as box:
        made = InBox(bench(tmp_path), box, attached)
        made.bench.save(4000)
        try:
            yield made
        finally:
            await made.console.close()


def end_of(run_dir: Path) -> ExitRecord:
    return loads(ExitRecord, (run_dir / "exit.json").read_bytes(), "exit.json")


@pytest.mark.parametrize("tool", ["docker", "kubectl", "incus"])
async def test_a_run_in_a_container_outlives_the_console_and_is_found_again(tmp_path: Path, tool: str) -> None:
    async with in_box(tmp_path, tool) as made:
        job, run_dir = await made.begun()
        job.cancel()
        await asyncio.wait({job})
        await made.console.close()
        assert not any(HELD in sentence for sentence in made.notices)
        assert made.pid(run_dir)
        made.console = made.another()
        assert left_running(made.console.store, "lab") == (run_dir.name,)
        made.send(run_dir, signal.SIGCONT)
        await reattach(made.console, run_dir.name)
        assert made.console.state.evaluation.state == "done"
        assert end_of(run_dir).state == "finished"


@pytest.mark.parametrize(("tool", "attached"), [("srun", False), ("docker", True)])
async def test_where_nothing_can_be_left_running_the_run_is_held_and_that_is_said(
    tmp_path: Path, tool: str, attached: bool
) -> None:
    async with in_box(tmp_path, tool, attached) as made:
        done = await evaluate(made.console)
        assert done.evaluation.pooled.blocks == 45
        why = "hosts.lab.attached is set" if attached else "srun can't leave a program running"
        assert f"{why}: {done.run_id} {HELD}" in made.notices
        await until(lambda: not made.console.does(f"hold {done.run_id}"))


async def test_a_held_run_goes_on_while_its_console_does_and_stops_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine may take longer to come to the end of `import torch` than a console waits when it closes.
    monkeypatch.setattr("dflash_tui.evals.launch.LET_GO_SECONDS", 60.0)
    monkeypatch.setattr("dflash_tui.console.console.CLOSE_SECONDS", 90.0)
    async with in_box(tmp_path, "srun") as made:
        job, run_dir = await made.begun()
        job.cancel()
        await asyncio.wait({job})
        assert f"{run_dir.name} goes on at lab; it ends when this console closes" in made.notices
        assert made.pid(run_dir)
        made.send(run_dir, signal.SIGCONT)
        await made.console.close()
        assert not made.pid(run_dir)
        assert end_of(run_dir).state == "stopped"
        assert "its console closed, or the link to it broke" in (run_dir / "log.txt").read_text()
        made.console = made.another()
        with pytest.raises(RunEnded, match=f"{run_dir.name}.*stopped"):
            await reattach(made.console, run_dir.name)


def far_side(run_dir: Path) -> int:
    """The launcher's process that holds the run's input: the one that its client has forked."""
    found = {}
    for pid in processes_with(str(run_dir)):
        with suppress(OSError):
            if b"standin.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found[pid] = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    (pid,) = (pid for pid, parent in found.items() if parent in found)
    return pid


async def test_a_held_run_whose_console_is_killed_stops_itself(tmp_path: Path) -> None:
    async with in_box(tmp_path, "srun") as made:
        job, run_dir = await made.begun()
        made.send(run_dir, signal.SIGCONT)
        # What is left of a console that was killed: nobody holds the other end of the run's input.
        os.kill(far_side(run_dir), signal.SIGKILL)
        await until((run_dir / "exit.json").exists)
        assert end_of(run_dir).state in ("stopped", "finished")
        with suppress(RunEnded):
            await job


async def test_a_held_run_is_stopped_by_its_name(tmp_path: Path) -> None:
    async with in_box(tmp_path, "srun") as made:
        job, run_dir = await made.begun()
        stopping = asyncio.create_task(stop.stop_run(made.console, run_dir.name))
        await until(lambda: any("asked to stop" in sentence for sentence in made.notices))
        made.send(run_dir, signal.SIGCONT)
        assert (await stopping).state == "stopped"
        with pytest.raises(RunEnded, match="stopped"):
            await job
        await until(lambda: not made.console.does(f"hold {run_dir.name}"))


async def test_a_held_run_that_is_killed_with_its_step_is_lost_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dflash_tui.evals.attach.ASK_SECONDS", 2.0)
    async with in_box(tmp_path, "srun") as made:
        job, run_dir = await made.begun()
        with (run_dir / "log.txt").open("a") as log:
            log.write("the last words\n")
        made.send(run_dir, signal.SIGKILL)
        with pytest.raises(RunEnded, match=r"lost.*the last words"):
            await asyncio.wait_for(job, 60)


async def test_where_logout_would_end_a_run_it_is_held_and_that_is_said(tmp_path: Path) -> None:
    environment = Logind(tmp_path / "systemd").environment()
    python = tmp_path / "python"
    kept = "".join(f"export {name}={shlex.quote(environment[name])}\n" for name in ("PATH", "XDG_SESSION_ID"))
    python.write_text(f'#!/bin/sh\n{kept}exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    made = bench(tmp_path, python=str(python))
    made.save(4000)
    try:
        done = await evaluate(made.console)
    finally:
        await made.console.close()
    assert end_of(tmp_path / "lab" / "eval" / "runs" / done.run_id).state == "finished"
    said = [event.sentence for event in made.told if isinstance(event, happened.Noticed)]
    assert any("KillUserProcesses=yes" in words and f"{done.run_id} {HELD}" in words for words in said)
