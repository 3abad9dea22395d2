"""Launchers: what a stopped or missing container says, what stands before a command, and what outlives it."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dflash_tui.hosts.base import CommandFailed, HostError, HostUnreachable, PermissionRefused
from dflash_tui.hosts.container import ContainerHost
from dflash_tui.hosts.launchers import parse_prefix
from dflash_tui.hosts.local import LocalHost
from dflash_tui.hosts.shell import ShellHost
from tests.launchers.boxes import JOB, TOOLS, Box, running_box
from tests.pct import Pct
from tests.sshd import processes_with


def sleeping(seconds: str) -> bool:
    """Whether a `sleep` of that many seconds runs; what only asks for one doesn't count."""
    for pid in processes_with(f"sleep\0{seconds}"):
        with suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes() == f"sleep\0{seconds}\0".encode():
                return True
    return False


DOCKERS = ("docker", "podman", "nerdctl")


@pytest.fixture
def pct(tmp_path: Path) -> Pct:
    return Pct(tmp_path)


@pytest.fixture(params=TOOLS)
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Box]:
    with running_box(tmp_path, request.param) as made:
        yield made


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


STOPPED = {
    **dict.fromkeys(DOCKERS, "is stopped; start it with `{tool} start train` on lab"),
    "kubectl": "does not run; see `kubectl get pods` on lab",
    **dict.fromkeys(("incus", "lxc"), "is stopped; start it with `{tool} start train` on lab"),
    "srun": "has ended: the job is over; see `squeue --me` on lab and name another",
}
MISSING = {
    **dict.fromkeys(DOCKERS, "does not exist; see `{tool} ps -a` on lab"),
    "kubectl": "does not exist; see `kubectl get pods` on lab",
    **dict.fromkeys(("incus", "lxc"), "does not exist; see `{tool} list` on lab"),
    "srun": "does not exist: no such job, or it has ended; see `squeue --me` on lab and name its number",
}


async def test_stopped_and_missing_are_told_apart_and_a_container_that_runs_again_is_reached(box: Box) -> None:
    host = ContainerHost(LocalHost("lab"), box.prefix(), "ct")
    assert (await host.run(["echo", "1"])).text == "1\n"
    box.stop()
    for attempt in (lambda: host.run(["true"]), lambda: host.stat("/data"), lambda: host.write("/data/x", b"1")):
        with pytest.raises(HostUnreachable) as failure:
            await attempt()
        assert STOPPED[box.tool].format(tool=box.tool) in str(failure.value)
        assert str(failure.value).startswith("ct (`")
    other = ContainerHost(LocalHost("lab"), box.prefix("999"), "other")
    with pytest.raises(HostUnreachable) as failure:
        await other.run(["true"], check=False)
    assert MISSING[box.tool].format(tool=box.tool) in str(failure.value)
    box.start()
    assert (await host.run(["echo", "2"])).text == "2\n"


async def test_a_program_inside_that_uses_the_launcher_s_words_is_its_own_failure(pct: Pct) -> None:
    host = ContainerHost(LocalHost("pve"), pct.prefix(), "ct200")
    with pytest.raises(CommandFailed):
        await host.run(["sh", "-c", "echo \"container '200' not running!\" >&2; exit 255"])


async def test_a_program_behind_any_launcher_may_use_its_words_and_none_are_added_to_its_own(box: Box) -> None:
    words = "\n".join(
        (
            "Error response from daemon: No such container: train",
            'pods "train" not found',
            "Instance is not running",
            "Invalid job id specified",
        )
    )
    host = ContainerHost(LocalHost("lab"), box.prefix(), "ct")
    with pytest.raises(CommandFailed) as failure:
        await host.run(["sh", "-c", 'echo "$1" >&2; exit 9', "sh", words])
    assert (failure.value.status, failure.value.stderr) == (9, f"{words}\n")


async def test_the_inside_is_another_tree_than_the_host_s(box: Box) -> None:
    host = ContainerHost(LocalHost("lab"), box.prefix(), "ct")
    await host.write("/data/inside", b"x")
    assert (box.root / "data" / "inside").read_bytes() == b"x"
    assert not Path("/data/inside").exists()


async def test_a_program_whose_launcher_is_killed_lives_on_and_is_ended_from_inside(box: Box) -> None:
    """That the stand-ins isolate: without the ending, a test that looks for leftovers could not fail."""
    seconds = f"{7000 + TOOLS.index(box.tool)}.25"
    launcher = await asyncio.create_subprocess_exec(*box.prefix(), "sleep", seconds, start_new_session=True)
    await _until(lambda: sleeping(seconds))
    launcher.kill()
    await launcher.wait()
    if box.tool in ("incus", "srun"):
        await _until(lambda: not sleeping(seconds))
    else:
        await asyncio.sleep(0.2)
        assert sleeping(seconds)

    host = ContainerHost(LocalHost("lab"), box.prefix(), "ct")
    async with host.stream(["sh", "-c", f"sleep 1{seconds} & sleep 2{seconds}; true"]):
        await _until(lambda: sleeping(f"1{seconds}") and sleeping(f"2{seconds}"))
    await _until(lambda: not sleeping(f"1{seconds}") and not sleeping(f"2{seconds}"))


async def _until(holds) -> None:  # type: ignore[no-untyped-def]
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.01)


async def test_a_daemon_outlives_its_command_where_the_host_says_so(box: Box) -> None:
    seconds = f"{7100 + TOOLS.index(box.tool)}.25"
    host = ContainerHost(LocalHost("lab"), box.prefix(), "ct")
    assert host.detaches == (box.tool != "srun")
    await host.run(["sh", "-c", f"setsid sleep {seconds} </dev/null >/dev/null 2>&1 & sleep 0.1"])
    assert bool(sleeping(seconds)) == host.detaches


async def test_srun_told_to_end_kills_its_step(tmp_path: Path) -> None:
    with running_box(tmp_path, "srun") as box:
        script = "trap '' TERM; sleep 7201.25; sleep 7202.25"
        step = await asyncio.create_subprocess_exec(*box.prefix(), "--ntasks=1", "sh", "-c", script)
        await _until(lambda: sleeping("7201.25"))
        step.terminate()
        assert await step.wait() == 137
        assert not sleeping("7201.25")


async def test_what_a_broken_link_left_behind_is_ended_at_the_next_command(tmp_path: Path) -> None:
    with running_box(tmp_path, "docker") as box:
        host = ContainerHost(Cut("lab"), box.prefix(), "ct")

        async def lose() -> None:
            async with host.stream(["sleep", "7301.25"]) as process:
                await _until(lambda: sleeping("7301.25"))
                Cut.cut = True
                await process.read()

        with pytest.raises(HostUnreachable):
            await lose()
        assert sleeping("7301.25")
        Cut.cut = False
        await host.run(["true"])
        await _until(lambda: not sleeping("7301.25"))


class Cut(LocalHost):
    """This machine over a link that breaks."""

    cut = False

    def stream(self, argv, *, stdin=False):  # type: ignore[no-untyped-def]
        return _Broken(super().stream(argv, stdin=stdin))


class _Broken:
    def __init__(self, opened) -> None:  # type: ignore[no-untyped-def]
        self.opened = opened

    async def __aenter__(self):  # type: ignore[no-untyped-def]
        process = await self.opened.__aenter__()
        reading = process.read

        async def read(limit: int = 1 << 20) -> bytes:
            if Cut.cut:
                raise HostUnreachable("lab: the connection broke")
            data: bytes = await reading(limit)
            return data

        process.read = read
        return process

    async def __aexit__(self, *error: object) -> object:
        return await self.opened.__aexit__(*error)


@pytest.mark.parametrize(
    ("words", "fed", "expected"),
    [
        ("docker exec trainer", False, "docker exec trainer"),
        ("docker exec trainer", True, "docker exec -i trainer"),
        ("docker exec -i -u root trainer", True, "docker exec -i -u root trainer"),
        ("docker exec --interactive=true trainer", True, "docker exec --interactive=true trainer"),
        ("sudo -n docker --context lab exec trainer", True, "sudo -n docker --context lab exec -i trainer"),
        ("docker exec --tty=false trainer", False, "docker exec --tty=false trainer"),
        ("/usr/bin/podman exec docker", True, "/usr/bin/podman exec -i docker"),
        ("kubectl exec -n training pod -c train", True, "kubectl exec -i -n training pod -c train --"),
        ("kubectl -ntraining exec pod --", True, "kubectl -ntraining exec -i pod --"),
        ("incus exec c1", True, "incus exec -T c1 --"),
        ("lxc exec c1 --mode=non-interactive --", True, "lxc exec c1 --mode=non-interactive --"),
        ("srun --jobid=7", True, "srun --ntasks=1 --overlap --jobid=7"),
        ("srun --jobid 7 -n1 --overlap -t 10", False, "srun --jobid 7 -n1 --overlap -t 10"),
        ("pct exec 200", True, "pct exec 200 --"),
        ("pct exec 200 -- docker exec trainer", True, "pct exec 200 -- docker exec -i trainer"),
        ("docker exec docker kubectl exec pod", True, "docker exec -i docker kubectl exec -i pod --"),
        ("nsenter -t 1 -a --", True, "nsenter -t 1 -a --"),
    ],
)
def test_a_prefix_gets_what_it_lacks(words: str, fed: bool, expected: str) -> None:
    assert parse_prefix(words.split(), "c").argv(stdin=fed) == expected.split()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("docker exec -it trainer", "take -t out of the prefix: a terminal changes the bytes"),
        ("docker exec --tty trainer", "take --tty out of the prefix"),
        ("docker exec -d trainer", "take -d out of the prefix: the output"),
        ("docker exec trainer --", "take -- out of the prefix"),
        ("docker exec", "names no container"),
        ("kubectl exec -ti pod --", "take -t out of the prefix"),
        ("incus exec -t c1 --", "take -t out of the prefix"),
        ("incus exec --mode=interactive c1 --", "take --mode=interactive out of the prefix"),
        ("lxc exec -n c1 --", "take -n out of the prefix: nothing can be written"),
        ("srun --jobid=7 --pty", "take --pty out of the prefix"),
        ("srun --jobid=7 -ul", "take -l out of the prefix: it puts the task's number"),
        ("srun --overlap", "without --jobid=N each command would ask for an allocation"),
        ("pct exec 200 -- docker exec -it trainer", "take -t out of the prefix"),
        ("ssh gate docker exec trainer", "name it in `via`"),
        ("", "expected one such as `pct exec 200 --`"),
    ],
)
def test_what_would_spoil_a_prefix_is_refused_with_what_to_take_out(words: str, said: str) -> None:
    with pytest.raises(HostError, match=r"^c: ") as failure:
        ContainerHost(LocalHost(), words.split(), "c")
    assert said in str(failure.value)


async def test_one_task_is_started_and_no_command_waits_for_another(tmp_path: Path) -> None:
    with running_box(tmp_path, "srun") as box:
        host = ContainerHost(LocalHost(), [str(box.path), f"--jobid={JOB}"], "job7")
        async with host.stream(["sleep", "7401.25"]):
            assert (await host.run(["echo", "once"], timeout=10)).text == "once\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "Error response from daemon: Container 4f5e is paused, unpause the container before exec",
            "docker unpause c1",
        ),
        (
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
            "not run",
        ),
        ('OCI runtime exec failed: exec failed: exec: "sh": executable file not found in $PATH: unknown', "no `sh`"),
    ],
)
async def test_other_words_of_docker(tmp_path: Path, words: str, said: str) -> None:
    with pytest.raises(HostUnreachable, match=said):
        await _refusing(tmp_path, words).run(["true"])


async def test_a_launcher_that_this_user_may_not_use_is_not_tried_again(tmp_path: Path) -> None:
    words = "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock"
    with pytest.raises(PermissionRefused, match="may not use docker on lab"):
        await _refusing(tmp_path, words).run(["true"])


def _refusing(tmp_path: Path, words: str) -> ContainerHost:
    launcher = tmp_path / "docker"
    launcher.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{words}\nEND\nexit 1\n")
    launcher.chmod(launcher.stat().st_mode | stat.S_IXUSR)
    return ContainerHost(LocalHost("lab"), [str(launcher), "exec", "c1"], "c1")


async def test_a_host_without_the_launcher_is_a_sentence() -> None:
    host = ContainerHost(LocalHost("lab"), ["no-such-launcher", "exec"], "c")
    with pytest.raises(HostError, match="no-such-launcher"):
        await host.run(["true"])


async def test_one_shell_answers_many_questions_behind_any_launcher(box: Box) -> None:
    shell = ShellHost(ContainerHost(LocalHost("lab"), box.prefix(), "ct"))
    (box.root / "data" / "file").write_bytes(b"\x00no line ends here")
    for _ in range(5):
        assert (await shell.run(["printf", "no line ends here"], timeout=10)).text == "no line ends here"
        assert await shell.read("/data/file", 1, 7) == b"no line"
        assert [entry.name for entry in await shell.list("/data")] == ["file"]
        with pytest.raises(CommandFailed, match="why"):
            await shell.run(["sh", "-c", "echo why >&2; exit 3"], timeout=10)
    await shell.close()
    assert len(box.calls) <= 2, "the shell, and its end"
