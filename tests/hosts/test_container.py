"""Launchers: what a stopped or missing container says, and what stands before a command."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from dflash_tui.hosts.base import CommandFailed, HostError, HostUnreachable
from dflash_tui.hosts.container import ContainerHost
from dflash_tui.hosts.local import LocalHost
from tests.pct import Pct


@pytest.fixture
def pct(tmp_path: Path) -> Pct:
    return Pct(tmp_path)


async def test_a_stopped_container_is_said_once_and_clearly(pct: Pct) -> None:
    host = ContainerHost(LocalHost("pve"), pct.prefix(201), "ct201")
    for attempt in (
        lambda: host.run(["true"]),
        lambda: host.stat("/data"),
        lambda: host.list("/data"),
        lambda: host.read("/x", 0, 1),
        lambda: host.write("/x", b"1"),
        lambda: host.make_folder("/y"),
        lambda: host.free_space("/"),
    ):
        with pytest.raises(HostUnreachable, match=r"ct201 .* is stopped; start it with `pct start 201` on pve"):
            await attempt()


async def test_a_missing_container_is_said(pct: Pct) -> None:
    with pytest.raises(HostUnreachable, match=r"ct999.*does not exist"):
        await ContainerHost(LocalHost("pve"), pct.prefix(999), "ct999").run(["true"], check=False)


async def test_a_container_that_stops_and_starts_again_is_reached_again(pct: Pct) -> None:
    host = ContainerHost(LocalHost("pve"), pct.prefix(), "ct200")
    assert (await host.run(["echo", "1"])).text == "1\n"
    pct.set_state("stopped")
    with pytest.raises(HostUnreachable):
        await host.run(["echo", "2"])
    pct.set_state("running")
    assert (await host.run(["echo", "3"])).text == "3\n"


async def test_a_program_inside_that_uses_the_launcher_s_words_is_its_own_failure(pct: Pct) -> None:
    host = ContainerHost(LocalHost("pve"), pct.prefix(), "ct200")
    with pytest.raises(CommandFailed):
        await host.run(["sh", "-c", "echo \"container '200' not running!\" >&2; exit 255"])


async def test_the_inside_is_another_tree_than_the_host_s(pct: Pct, tmp_path: Path) -> None:
    host = ContainerHost(LocalHost("pve"), pct.prefix(), "ct200")
    await host.write("/data/inside", b"x")
    assert (pct.root / "data" / "inside").read_bytes() == b"x"
    assert not Path("/data/inside").exists()


@pytest.mark.parametrize(
    ("prefix", "fed", "expected"),
    [
        (["docker", "exec", "trainer"], False, "exec trainer cat"),
        (["docker", "exec", "trainer"], True, "exec -i trainer cat"),
        (["docker", "--context", "lab", "exec", "trainer"], True, "--context lab exec -i trainer cat"),
        (["srun", "--jobid=7", "--overlap"], True, "--jobid=7 --overlap cat"),
    ],
)
async def test_stdin_is_asked_for_only_when_it_is_fed(
    tmp_path: Path, prefix: list[str], fed: bool, expected: str
) -> None:
    launcher = tmp_path / prefix[0]
    launcher.write_text('#!/bin/sh\ncat >/dev/null\necho "$*"\n')
    launcher.chmod(launcher.stat().st_mode | stat.S_IXUSR)
    host = ContainerHost(LocalHost(), [str(launcher), *prefix[1:]], "c")
    assert (await host.run(["cat"], stdin=b"data" if fed else b"")).text == f"{expected}\n"


@pytest.mark.parametrize(
    "words",
    [
        "Error response from daemon: container 4f5e is not running",
        "Error response from daemon: No such container: trainer",
        "Error: can only create exec sessions on running containers: container state improper",
        'Error from server (NotFound): pods "trainer" not found',
        "srun: error: Slurm job 7 has expired\nsrun: error: Invalid job id specified",
        "Error: Instance is not running",
    ],
)
async def test_other_launchers_words_for_not_running(tmp_path: Path, words: str) -> None:
    launcher = tmp_path / "launcher"
    launcher.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{words}\nEND\nexit 1\n")
    launcher.chmod(launcher.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(HostUnreachable, match="is not running or does not exist"):
        await ContainerHost(LocalHost("lab"), [str(launcher), "exec", "trainer"], "trainer").run(["true"])


def test_a_prefix_is_needed() -> None:
    with pytest.raises(HostError, match="pct exec 200"):
        ContainerHost(LocalHost(), [], "c")


async def test_a_host_without_the_launcher_is_a_sentence() -> None:
    host = ContainerHost(LocalHost("lab"), ["no-such-launcher", "exec"], "c")
    with pytest.raises(HostError, match="no-such-launcher"):
        await host.run(["true"])
