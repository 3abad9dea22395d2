"""Hashes that hosts make themselves, whatever they have for it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import sys
import time
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dflash_tui.checkpoints.segments import Late, Literal, Output, Range
from dflash_tui.hosts.base import FileMissing, HostUnreachable, Process, ReadShort
from dflash_tui.hosts.local import LocalHost
from dflash_tui.transfer import digests
from dflash_tui.transfer.digests import (
    chunk_digests,
    digest,
    digest_many,
    range_crc,
    range_crcs,
    range_digest,
    source_digest,
)
from dflash_tui.transfer.engine import CHUNK
from dflash_tui.transfer.errors import TransferError
from tests.sshd import processes_with
from tests.transfer.interrupted import BreakingHost
from tests.transfer.lab import MIB, Place, fill, place

NAMES = ("plain", "it's $HOME", "-rf *", "new\nline", "back\\slash")


@pytest.fixture(params=["local", "ssh", "pct", "docker"])
async def there(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    async with place(request.param, tmp_path / "there", "ct200") as found:
        yield found


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("name", NAMES)
async def test_a_file_is_hashed_on_every_host(there: Place, name: str) -> None:
    data = fill(there.real / name, MIB + 17)
    told: list[int] = []
    assert await digest(there.host, f"{there.folder}/{name}", len(data), told.append) == sha256(data)
    assert sum(told) == len(data)


async def test_many_files_are_hashed_by_few_commands_on_every_host(there: Place) -> None:
    names = [*NAMES, *(f"{number}'s {'x' * 200}" for number in range(300))]
    data = [fill(there.real / name, number) for number, name in enumerate(names)]
    paths, sizes = [f"{there.folder}/{name}" for name in names], [len(each) for each in data]
    told: list[int] = []
    began = time.monotonic()
    assert await digest_many(there.host, paths, sizes, told.append) == [sha256(each) for each in data]
    assert time.monotonic() - began < 20  # 300 commands take longer in a container
    assert sum(told) == sum(sizes)
    assert await digest_many(there.host, [], []) == []
    with pytest.raises(FileMissing, match=r"one of 2 files from .* on does not exist"):
        await digest_many(there.host, [paths[0], f"{there.folder}/gone"], [0, 5])


async def test_chunks_are_hashed_on_every_host(there: Place) -> None:
    data = fill(there.real / "a b", CHUNK + MIB + 17)
    told: list[int] = []
    found = await chunk_digests(there.host, f"{there.folder}/a b", len(data), told.append)
    assert found == (sha256(data[:CHUNK]), sha256(data[CHUNK:]))
    assert told == [CHUNK, MIB + 17]


async def test_an_empty_file_has_a_hash_and_no_chunks(there: Place) -> None:
    fill(there.real / "empty", 0)
    assert await digest(there.host, f"{there.folder}/empty", 0) == sha256(b"")
    assert await chunk_digests(there.host, f"{there.folder}/empty", 0) == ()


async def test_a_composed_file_is_hashed_where_its_pieces_lie(there: Place) -> None:
    data, other = fill(there.real / "it's", 3 * MIB), fill(there.real / "other", MIB)
    output = Output(
        "x.pt", (Literal(bytes(range(256))), Range("it's", 5, MIB), Literal(b"%d\\"), Range("other", 0, MIB))
    )
    expected = bytes(range(256)) + data[5 : 5 + MIB] + b"%d\\" + other
    assert await source_digest(there.host, there.folder, output) == sha256(expected)
    assert await range_digest(there.host, there.folder, Range("it's", 7, 2 * MIB)) == sha256(data[7 : 7 + 2 * MIB])


@pytest.fixture(params=["dd", "tail"])
def skipping(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine, and one whose `dd` knows no positions in bytes."""
    if request.param == "tail":
        (tmp_path / "bin").mkdir()
        old = tmp_path / "bin" / "dd"
        words = 'case "$*" in *skip_bytes*) echo "dd: invalid input flag" >&2; exit 1 ;; esac'
        old.write_text(f'#!/bin/sh\n{words}\nexec {shutil.which("dd")} "$@"\n')
        old.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")


@pytest.mark.usefixtures("skipping")
async def test_a_piece_is_read_by_either_way_of_skipping(tmp_path: Path) -> None:
    data = fill(tmp_path / "a", 3 * MIB)
    piece = Range("a", MIB + 1, MIB + 5)
    assert await range_digest(LocalHost(), str(tmp_path), piece) == sha256(data[MIB + 1 : 2 * MIB + 6])


async def test_a_whole_file_is_hashed_as_one(there: Place) -> None:
    data = fill(there.real / "a", MIB)
    told: list[int] = []
    whole = Output("a", (Range("a", 0, 1000, 5), Range("a", 1000, MIB - 1000, 6)))
    assert await source_digest(there.host, there.folder, whole, told.append) == sha256(data)
    assert sum(told) == MIB
    # Its first bytes alone are another file.
    first = Output("a", (Range("a", 0, 1000),))
    assert await source_digest(there.host, there.folder, first) == sha256(data[:1000])


async def test_crcs_come_from_python_where_there_is_one(there: Place) -> None:
    data, other = fill(there.real / "it's", 3 * MIB), fill(there.real / "new\nline", 100)
    pieces = [Range("it's", 5, MIB), Range("new\nline", 0, 100), Range("it's", 0, 0)]
    found = await range_crcs(there.host, there.folder, pieces)
    if shutil.which("python3") and there.sshd is None:
        assert found == [zlib.crc32(data[5 : 5 + MIB]), zlib.crc32(other), 0]
        assert await range_crc(there.host, there.folder, pieces[1]) == zlib.crc32(other)
    else:
        assert found in ([None] * 3, [zlib.crc32(data[5 : 5 + MIB]), zlib.crc32(other), 0])


async def test_what_is_missing_or_short_is_told_as_that(there: Place) -> None:
    fill(there.real / "a", 100)
    with pytest.raises(FileMissing, match=r"ct200: .*/gone does not exist"):
        await digest(there.host, f"{there.folder}/gone", 5)
    with pytest.raises(FileMissing, match="gone does not exist"):
        await chunk_digests(there.host, f"{there.folder}/gone", 5)
    with pytest.raises(FileMissing):
        await source_digest(there.host, there.folder, Output("x", (Range("gone", 0, 5),)))
    with pytest.raises(ReadShort, match=r"a has 100 bytes, 101 are read of it"):
        await source_digest(there.host, there.folder, Output("x", (Range("a", 1, 100),)))
    told: list[int] = []
    with pytest.raises((ReadShort, TransferError)):
        await chunk_digests(there.host, f"{there.folder}/a", CHUNK + 1, told.append)
    assert sum(told) == 0, "what was told of a hash that came to nothing is taken back"


async def test_an_end_that_is_not_known_yet_can_not_be_hashed(tmp_path: Path) -> None:
    fill(tmp_path / "a", 10)
    output = Output("x", (Range("a", 0, 10), Late(4, lambda crcs: bytes(4))))
    with pytest.raises(ValueError, match="not known"):
        await source_digest(LocalHost(), str(tmp_path), output)


def only(folder: Path, *programs: str) -> str:
    """A PATH with only these programs."""
    folder.mkdir()
    for program in programs:
        # A version manager's python3 is a script of bash.
        found = sys._base_executable if program == "python3" else shutil.which(program)  # type: ignore[attr-defined]
        assert found is not None
        (folder / program).symlink_to(found)
    return str(folder)


_NEEDED = ("sh", "dd", "sleep", "stat", "test", "head", "tail")


@pytest.mark.parametrize("programs", [("openssl",), ("python3",), ("sha256sum",), ("openssl", "python3", "sha256sum")])
async def test_whatever_program_there_is_it_is_the_same_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: tuple[str, ...]
) -> None:
    data = fill(tmp_path / "a", CHUNK + 5)
    monkeypatch.setenv("PATH", only(tmp_path / "bin", *_NEEDED, *programs))
    host, path = LocalHost(), str(tmp_path / "a")
    assert await digest(host, path, len(data)) == sha256(data)
    assert await chunk_digests(host, path, len(data)) == (sha256(data[:CHUNK]), sha256(data[CHUNK:]))
    output = Output("x", (Literal(b"head"), Range("a", 1, MIB)))
    assert await source_digest(host, str(tmp_path), output) == sha256(b"head" + data[1 : MIB + 1])
    crc = zlib.crc32(data[3:8]) if "python3" in programs else None
    assert await range_crc(host, str(tmp_path), Range("a", 3, 5)) == crc


async def test_a_program_that_does_not_work_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = fill(tmp_path / "a", 100)
    path = only(tmp_path / "bin", *_NEEDED, "sha256sum")
    broken = Path(path) / "openssl"
    broken.write_text("#!/bin/sh\necho 'openssl: libssl.so.3 is missing' >&2; exit 127\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", path)
    assert await digest(LocalHost(), str(tmp_path / "a"), 100) == sha256(data)


async def test_a_host_that_hashes_nothing_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "a", 100)
    monkeypatch.setenv("PATH", only(tmp_path / "bin", *_NEEDED))
    with pytest.raises(TransferError, match=r"local: no SHA-256 of .*/a: neither openssl nor python3 nor sha256sum"):
        await digest(LocalHost(), str(tmp_path / "a"), 100)


async def test_a_long_hash_is_seen_to_advance_and_can_be_cancelled(tmp_path: Path) -> None:
    async with place("ssh", tmp_path / "there", "ct200") as there:
        slow = there.real / "slow"
        os.mkfifo(slow)
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await digest(there.host, str(slow), 1 << 40)
        async with asyncio.timeout(20):
            while processes_with(str(slow)):
                await asyncio.sleep(0.01)
        with (there.real / "sparse").open("wb") as file:
            file.truncate(64 << 30)
        told: list[int] = []
        some = asyncio.Event()

        def tell(nbytes: int) -> None:
            told.append(nbytes)
            some.set()

        hashing = asyncio.create_task(digest(there.host, f"{there.folder}/sparse", 64 << 30, tell))
        async with asyncio.timeout(30):
            await some.wait()
        assert 0 < told[0] < 64 << 30
        hashing.cancel()
        with suppress(asyncio.CancelledError):
            await hashing
        assert sum(told) == 0
        async with asyncio.timeout(20):
            while processes_with("dgst\0-sha256"):
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("composed", [False, True], ids=["a file", "composed"])
async def test_a_hash_that_stands_still_is_a_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, composed: bool
) -> None:
    monkeypatch.setattr(digests, "_STALL_SECONDS", 2.5)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(64 << 30)
    output = Output("sparse", (*([Literal(b"head")] if composed else []), Range("sparse", 0, 64 << 30)))
    stopped: list[int] = []

    def stop(nbytes: int) -> None:
        if not stopped:
            stopped.extend(_hashing(tmp_path))
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)

    async with asyncio.timeout(30):
        with pytest.raises(HostUnreachable, match=r"local: hashing .*/sparse stood still for 2 s \(byte [\d,]+\)"):
            await source_digest(LocalHost(), str(tmp_path), output, tell=stop)
        assert stopped
        while _hashing(tmp_path):
            await asyncio.sleep(0.01)


def _hashing(folder: Path) -> list[int]:
    """Programs that hash what lies in a folder: those of a session whose stdin or command names it."""
    sessions, hashers = set(), {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            command = (process / "cmdline").read_text()
            session = os.getsid(int(process.name))
            if str(folder) in command or str((process / "fd/0").readlink()).startswith(str(folder)):
                sessions.add(session)
            if "dgst\0-sha256" in command:
                hashers[int(process.name)] = session
    return [pid for pid, session in hashers.items() if session in sessions]


class _LosingHost(BreakingHost):
    """Behind a launcher that loses what a command prints and tells that it ended well."""

    @asynccontextmanager
    async def _stream(self, argv: Sequence[str], stdin: bool) -> AsyncIterator[Process]:
        async with self.inner.stream(["true"], stdin=stdin) as process:
            yield process


async def test_a_hash_that_does_not_arrive_is_worth_another_try(tmp_path: Path) -> None:
    fill(tmp_path / "a", 100)
    with pytest.raises(ReadShort, match="0 of 1 SHA-256 came"):
        await digest(_LosingHost(LocalHost("ct129")), str(tmp_path / "a"), 100)


@pytest.mark.usefixtures("skipping")
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
async def test_any_composition_has_the_hash_of_its_bytes(tmp_path: Path, data: st.DataObject) -> None:
    file = tmp_path / "a"
    content = file.read_bytes() if file.exists() else fill(file, 3 * MIB)
    piece = st.tuples(st.integers(0, 2 * MIB), st.integers(0, MIB)).map(lambda pair: Range("a", *pair))
    segments = data.draw(st.lists(piece | st.binary(max_size=300).map(Literal), min_size=1, max_size=6))
    expected = b"".join(
        segment.data if isinstance(segment, Literal) else content[segment.offset : segment.offset + segment.nbytes]
        for segment in segments
    )
    found = await source_digest(LocalHost(), str(tmp_path), Output("x", tuple(segments)))
    assert found == sha256(expected)
