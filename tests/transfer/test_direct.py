"""From host to host: proven to be the host that is meant, with the source's own keys, and nothing left running."""

from __future__ import annotations

import asyncio
import getpass
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_tui.checkpoints.segments import Literal, Output, Range
from dflash_tui.hosts.base import HostUnreachable, ReadShort
from dflash_tui.hosts.container import ContainerHost
from dflash_tui.transfer.direct import DirectEngine, DirectRoute, reachable
from dflash_tui.transfer.errors import SourceChanged, TransferError
from dflash_tui.transfer.pace import Shared
from dflash_tui.transfer.writing import writing
from tests.pct import Pct
from tests.sshd import descendants, processes_with, running_sshd
from tests.transfer.lab import MIB, Place, Told, fill, leg, place
from tests.workstation import until

SIZE = 24 * MIB + 12_345
LARGE = 400 * MIB


def let_in(source: Place, destination: Place, *, key: bool = True, known: bool = True) -> None:
    """The source's user has a configuration by which its `ssh` gets to the destination: on one machine that is a file,
    which a program called `ssh` in the source's PATH names."""
    assert source.sshd is not None
    assert destination.sshd is not None
    folder, there = source.sshd.folder, destination.sshd.folder
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "known").write_bytes((there / "known_hosts").read_bytes() if known else b"")
    identity = there / "client_key" if key else folder / "host_key"
    (folder / "config").write_text(
        f"IdentityFile {identity}\nIdentitiesOnly yes\nUserKnownHostsFile {folder}/known\nGlobalKnownHostsFile none\n"
    )
    program = folder / "bin" / "ssh"
    program.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {folder}/config "$@"\n')
    program.chmod(0o755)
    (folder / ".bashrc").write_text(f"PATH={folder}/bin:$PATH\n")


@pytest.fixture(params=["ssh ssh", "ssh pct", "ssh docker", "container ssh"])
async def places(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Place, Place]]:
    first, second = request.param.split()
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(place("ssh", tmp_path / "source", "train"))
        destination = await stack.enter_async_context(place(second, tmp_path / "destination", "eval"))
        let_in(source, destination)
        if first == "container":
            assert source.sshd is not None
            inside = ["env", f"PATH={source.sshd.folder}/bin:/usr/bin:/bin"]
            (source.sshd.folder / ".bashrc").unlink()
            source.host = ContainerHost(source.host, inside, "train")
        yield source, destination


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Place, Place]]:
    async with (
        place("ssh", tmp_path / "source", "train") as source,
        place("ssh", tmp_path / "destination", "eval") as destination,
    ):
        let_in(source, destination)
        yield source, destination


async def engine(source: Place, destination: Place) -> DirectEngine:
    way = await reachable(source.host, destination.host, destination.folder)
    assert isinstance(way, DirectRoute), way
    return DirectEngine(way)


def nothing_is_left(tmp_path: Path, *places: Place) -> None:
    until(lambda: not _running(tmp_path, *places), f"the end of {_running(tmp_path, *places)}", seconds=20)


def _running(tmp_path: Path, *places: Place) -> list[str]:
    """Commands below the servers, and any that names a file of the test's."""
    found = []
    for pid in {*processes_with(str(tmp_path)), *(pid for there in places for pid in _below(there))}:
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if words[0].rsplit(b"/", 1)[-1] in (b"ssh", b"dd", b"sh", b"pct"):
                found.append(b" ".join(words).decode("utf-8", "replace")[:200])
    return found


def _below(place: Place) -> list[int]:
    return [] if place.sshd is None else descendants(place.sshd.pid)


async def test_every_byte_arrives_without_coming_here(places: tuple[Place, Place], tmp_path: Path) -> None:
    source, destination = places
    data = fill(source.real / "f'ü", SIZE)
    header = bytes(range(256)) * 3
    output = Output("f", (Literal(header), Range("f'ü", 5, SIZE - 5), Range("f'ü", 0, 3), Literal(b"%\n'\\")))
    expected = header + data[5:] + data[:3] + b"%\n'\\"
    direct, told = await engine(source, destination), Told()
    assert os.listdir(destination.real) == []
    await direct.carry(leg(source, output, destination, told, stop=20 * MIB))
    part = destination.real / ".x.part"
    assert part.read_bytes() == expected[: 20 * MIB]
    await direct.carry(leg(source, output, destination, told, start=20 * MIB))
    assert part.read_bytes() == expected
    assert (told.read, told.written, told.paced) == (len(expected),) * 3
    assert told.chunks == {}
    nothing_is_left(tmp_path, source, destination)


async def test_a_folder_that_is_not_there_yet_is_reached(pair: tuple[Place, Place]) -> None:
    source, destination = pair
    way = await reachable(source.host, destination.host, f"{destination.folder}/not/there/yet")
    assert isinstance(way, DirectRoute)
    assert destination.sshd is not None
    assert way.target.endswith(f"@127.0.0.1:{destination.sshd.port}")
    assert os.listdir(destination.real) == []


async def test_a_source_that_is_not_let_in_is_said(pair: tuple[Place, Place]) -> None:
    source, destination = pair
    let_in(source, destination, key=False)
    sentence = await reachable(source.host, destination.host, destination.folder)
    assert isinstance(sentence, str)
    assert sentence.startswith("train can't log in to ")
    assert "Permission denied" in sentence
    assert os.listdir(destination.real) == []


async def test_a_key_that_the_source_does_not_know_is_neither_accepted_nor_added(pair: tuple[Place, Place]) -> None:
    source, destination = pair
    let_in(source, destination, known=False)
    sentence = await reachable(source.host, destination.host, destination.folder)
    assert isinstance(sentence, str)
    assert "key verification failed" in sentence
    assert source.sshd is not None
    assert (source.sshd.folder / "known").read_bytes() == b""


async def test_another_machine_under_the_name_is_not_the_destination(pair: tuple[Place, Place], tmp_path: Path) -> None:
    source, destination = pair
    (tmp_path / "other").mkdir()
    inside = Pct(tmp_path / "other")
    (tmp_path / "keys").mkdir()
    # Who logs in here finds himself on a machine with other files.
    force = f'ForceCommand {inside.path} exec 200 -- sh -c "$SSH_ORIGINAL_COMMAND"'
    with running_sshd(tmp_path / "keys", force) as server:
        let_in(source, Place(destination.host, "", inside.root, server))
        target = f"{getpass.getuser()}@127.0.0.1:{server.port}"
        sentence = await reachable(source.host, destination.host, destination.folder, target)
    assert isinstance(sentence, str)
    assert sentence.startswith(f"train reaches {target}, but that is another machine: eval's files are not there")
    assert "hosts.eval.direct" in sentence
    assert os.listdir(destination.real) == []


async def test_a_source_without_ssh_is_said(tmp_path: Path) -> None:
    async with (
        place("pct", tmp_path / "source", "train") as source,
        place("ssh", tmp_path / "destination", "eval") as destination,
    ):
        sentence = await reachable(source.host, destination.host, destination.folder)
        assert sentence == "train has no ssh program, by which it would reach eval itself"


async def test_a_destination_that_is_not_reached_is_no_refused_login(pair: tuple[Place, Place]) -> None:
    source, destination = pair
    for target, said in (("eva@127.0.0.1:1", "refused"), ("eva@no-such-host.invalid", "resolve")):
        sentence = await reachable(source.host, destination.host, destination.folder, target)
        assert isinstance(sentence, str)
        assert sentence.startswith(f"train does not reach {target}: ")
        assert said in sentence
        assert "hosts.eval.direct" in sentence


async def test_what_is_behind_the_host_that_is_reached_may_not_answer(pair: tuple[Place, Place]) -> None:
    source, destination = pair
    lost = ContainerHost(destination.host, ["no-such-launcher", "exec"], "eval")

    class Seen(ContainerHost):
        """A destination that we reach, by a launcher that is missing for those who log in."""

        def system_command(self, *words: object, **options: object) -> list[str] | None:
            return lost.system_command(*words, **options)  # type: ignore[arg-type]

    seen = Seen(destination.host, ["env"], "eval")
    sentence = await reachable(source.host, seen, destination.folder)
    assert isinstance(sentence, str)
    assert "but does not get to eval's files from there (status 127: " in sentence
    assert "another machine" not in sentence


async def test_a_changed_key_is_said_to_be_another(pair: tuple[Place, Place]) -> None:
    source, destination = pair
    assert source.sshd is not None
    assert destination.sshd is not None
    own = (source.sshd.folder / "host_key.pub").read_text()
    (source.sshd.folder / "known").write_text(f"[127.0.0.1]:{destination.sshd.port} {own}")
    sentence = await reachable(source.host, destination.host, destination.folder)
    assert isinstance(sentence, str)
    assert "the host key there is not the one that train's known_hosts holds" in sentence


async def test_this_workstation_is_no_place_for_a_source_to_send_to(tmp_path: Path) -> None:
    async with (
        place("ssh", tmp_path / "source", "train") as source,
        place("local", tmp_path / "destination", "here") as destination,
    ):
        assert "it is this workstation" in str(await reachable(source.host, destination.host, destination.folder))


async def test_an_old_ssh_that_knows_fewer_options_is_told_fewer(pair: tuple[Place, Place]) -> None:
    source, destination = pair
    assert source.sshd is not None
    program = source.sshd.folder / "bin" / "ssh"
    program.write_text(
        '#!/bin/sh\ncase "$*" in *Ciphers=^*) echo "Bad SSH2 cipher spec" >&2; exit 255;; esac\n'
        f'exec /usr/bin/ssh -F {source.sshd.folder}/config "$@"\n'
    )
    data = fill(source.real / "f", SIZE)
    direct = await engine(source, destination)
    await direct.carry(leg(source, Output("f", (Range("f", 0, SIZE),)), destination, Told()))
    assert (destination.real / ".x.part").read_bytes() == data


def _kill_ssh(source: Place, destination: Place) -> None:
    for pid in _below(source):
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "ssh":
                os.kill(pid, signal.SIGKILL)


def _cut_source(source: Place, destination: Place) -> None:
    assert source.sshd is not None
    source.sshd.kill_sessions()


def _cut_destination(source: Place, destination: Place) -> None:
    assert destination.sshd is not None
    destination.sshd.kill_sessions()


@pytest.mark.parametrize("cut", [_kill_ssh, _cut_source, _cut_destination])
async def test_a_cut_is_a_cut_and_can_be_continued(
    pair: tuple[Place, Place], tmp_path: Path, cut: Callable[[Place, Place], None]
) -> None:
    source, destination = pair
    data = fill(source.real / "f", LARGE)
    output = Output("f", (Range("f", 0, LARGE),))
    direct, part = await engine(source, destination), destination.real / ".x.part"
    work = asyncio.create_task(direct.carry(leg(source, output, destination, Told())))
    await asyncio.to_thread(until, lambda: part.exists() and part.stat().st_size > 20 * MIB, "some bytes")
    cut(source, destination)
    with pytest.raises((HostUnreachable, ReadShort)):
        await work
    nothing_is_left(tmp_path, source, destination)
    arrived = part.read_bytes()
    assert 0 < len(arrived) < LARGE
    assert arrived == data[: len(arrived)]
    await direct.carry(leg(source, output, destination, Told(), start=len(arrived) // MIB * MIB))
    assert part.read_bytes() == data


async def test_cancelled_it_leaves_nothing_running_on_either(pair: tuple[Place, Place], tmp_path: Path) -> None:
    source, destination = pair
    fill(source.real / "f", LARGE)
    direct, part = await engine(source, destination), destination.real / ".x.part"
    work = asyncio.create_task(direct.carry(leg(source, Output("f", (Range("f", 0, LARGE),)), destination, Told())))
    await asyncio.to_thread(until, lambda: part.exists() and part.stat().st_size > 20 * MIB, "some bytes")
    assert _running(tmp_path, source, destination)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    nothing_is_left(tmp_path, source, destination)


async def test_progress_is_what_lies_there(pair: tuple[Place, Place]) -> None:
    source, destination = pair
    fill(source.real / "f", SIZE)
    direct = await engine(source, destination)
    seen = asyncio.Event()

    class Watched(Told):
        def count(self, read: int, written: int) -> None:
            super().count(read, written)
            if self.written < SIZE:
                seen.set()

    assert source.sshd is not None
    # The wire stands still after some bytes, until they were seen.
    program = source.sshd.folder / "bin" / "ssh"
    gate = source.sshd.folder / "gate"
    program.write_text(
        f"#!/bin/sh\n{{ head -c 9000000; while [ ! -e {gate} ]; do sleep 0.05; done; cat; }} | "
        f'/usr/bin/ssh -F {source.sshd.folder}/config "$@"\n'
    )
    told = Watched()
    work = asyncio.create_task(direct.carry(leg(source, Output("f", (Range("f", 0, SIZE),)), destination, told)))
    await asyncio.wait_for(seen.wait(), 30)
    assert 0 < told.written <= 9_000_000
    gate.touch()
    await work
    assert told.written == SIZE


async def test_a_writer_that_was_left_behind_is_ended_first(pair: tuple[Place, Place]) -> None:
    source, destination = pair
    data = fill(source.real / "f", SIZE)
    part = f"{destination.folder}/.x.part"
    direct = await engine(source, destination)
    async with destination.host.stream(writing(part, 0, SIZE), stdin=True) as orphan:
        await orphan.write(b"bytes that come late")
        await asyncio.to_thread(until, lambda: Path(part).exists() and Path(part).stat().st_size, "its bytes")
        told = Told()
        await direct.carry(leg(source, Output("f", (Range("f", 0, SIZE),)), destination, told))
        assert (await orphan.wait()).status == 128 + 9
    assert Path(part).read_bytes() == data
    assert told.written == SIZE


async def test_a_limit_is_kept_chunk_by_chunk(pair: tuple[Place, Place]) -> None:
    source, destination = pair
    data = fill(source.real / "f", 130 * MIB)
    direct, told = await engine(source, destination), Told()
    lane = Shared(80 * MIB).lane()
    made = leg(source, Output("f", (Range("f", 0, len(data)),)), destination, told)
    began = asyncio.get_running_loop().time()
    await direct.carry(replace(made, pace=lane))
    assert asyncio.get_running_loop().time() - began > 0.9  # half the bytes must have waited for the other half
    assert (destination.real / ".x.part").read_bytes() == data
    assert told.written == len(data)


async def test_a_source_that_ends_early_or_is_gone_is_said(pair: tuple[Place, Place], tmp_path: Path) -> None:
    source, destination = pair
    fill(source.real / "f", SIZE)
    direct = await engine(source, destination)
    with pytest.raises(ReadShort, match="eval:"):
        await direct.carry(leg(source, Output("f", (Range("f", 0, SIZE + 1),)), destination, Told()))
    output = Output("f", (Range("f", 0, 10), Range("nothing", 0, 10)))
    with pytest.raises(SourceChanged, match="is gone"):
        await direct.carry(leg(source, output, destination, Told()))
    (destination.real / "folder").mkdir()
    with pytest.raises(TransferError, match="can't be written"):
        await direct.carry(leg(source, Output("f", (Range("f", 0, 9),)), destination, Told(), part="folder"))
    nothing_is_left(tmp_path, source, destination)
