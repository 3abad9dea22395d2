"""The demo's commands against the real ones of this machine: the same words in, the same bytes and status out."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from dflash_tui.demo.commands import shell_syntax
from dflash_tui.demo.world import DemoWorld
from tests.sshd import need

READING = [
    "cat F/log",
    "cat F/log F/empty F/log",
    "cat F/nothing F/log",
    "cat F",
    "head -c 7 F/log",
    "head -c 9999999 F/data",
    "tail -c +1 F/log",
    "tail -c +6 F/log",
    "tail -c +9999 F/log",
    "tail -c 5 F/log",
    "tail -n 2 F/log",
    "tail -n +2 F/log",
    "tail -n 99 F/log",
    "tail F/nothing",
    "dd if=F/data bs=4096 skip=3 count=2",
    "dd if=F/data bs=65536 skip=1 count=1 status=none",
    "dd if=F/data bs=65536 skip=99 count=1",
    "dd if=F/data bs=1M iflag=skip_bytes,count_bytes,fullblock skip=12345 count=54321",
    "dd if=F/data bs=1k count=0",
    "dd if=F/nothing bs=4096",
    "sha256sum F/data F/log",
    "sha256sum F/nothing F/data",
    "openssl dgst -sha256 -r F/data",
    "openssl dgst -sha256 F/data F/log",
    "openssl dgst -sha256 -r F/nothing",
    "stat -c '%f %s %Y %i %h' F/data",
    "stat -L -c '%f %s %Y %i %h %n' F/link F/folder",
    "stat -c '%F|%a|%A|%n|%%|%u %g %h %b %B' F/link F/folder F/empty",
    "stat -c %s F/nothing F/data",
    "stat -L -c %s F/dangling",
    "find F/ -mindepth 1 -maxdepth 1 -exec stat -c '%f %s %Y %i %h %n' '{}' +",
    "find F -mindepth 1 -print0",
    "find F -type f",
    "find F/folder -maxdepth 0",
    "find F -type f -name log",
    "find F/data/ -mindepth 1 -maxdepth 1",
    "find F/nothing/ -mindepth 1",
    "ls F",
    "ls -A F",
    "ls -1 F/data",
    "ls F/nothing",
    "readlink F/link",
    "readlink F/data",
    "readlink -f F/link",
    "readlink -f F/folder/../link",
    "readlink -f F/nothing",
    "readlink -f F/nothing/deeper",
    "readlink -e F/dangling",
    "readlink -n F/link",
    "test -e F/link",
    "test -e F/dangling",
    "test -L F/dangling",
    "test -f F/folder",
    "test -d F/folder",
    "test -s F/empty",
    "test '!' -e F/nothing",
    "test -e F/nothing",
    "sync F/data",
    "sync F/nothing",
    "df -P -k F",
    "df -B1 --output=avail F",
    "df -P -i F",
    "df -P F/nothing",
    "date -u +%Y-%m-%d",
    "date +%z",
    "uname",
    "uname -m",
    "true",
]

CHANGING = [
    ["mkdir F/new", "mkdir F/new"],
    ["mkdir -p F/new/deep/er", "mkdir -p F/new/deep/er", "mkdir F/nothing/deep"],
    ["mkdir F/data", "mkdir -p F/data"],
    ["rm F/data", "rm F/data", "rm -f F/data"],
    ["rm F/folder", "rm -r F/folder"],
    ["rm F/link", "rm -f F/nothing F/log"],
    ["mv F/data F/other", "mv F/data F/other"],
    ["mv F/data F/folder"],
    ["mv -f F/data F/log"],
    ["mv -T F/data F/folder"],
    ["mv -T -n F/data F/fresh"],
    ["mv F/link F/renamed"],
    ["mv F/folder F/renamed"],
    ["ln F/data F/hard", "ln F/data F/hard", "ln -f F/log F/hard"],
    ["ln F/nothing F/hard"],
    ["ln F/folder F/hard"],
    ["ln -s data F/soft", "ln -s data F/soft"],
    ["cp F/data F/copy", "cp --reflink=auto F/data F/copy"],
    ["cp F/link F/copy", "cp F/data F/folder", "cp F/nothing F/copy"],
    ["dd of=F/written bs=65536", "dd of=F/log bs=1 seek=3 conv=notrunc", "dd of=F/data bs=4096 seek=2"],
    ["dd of=F/log oflag=append conv=notrunc,fsync", "dd of=F/nothing/x bs=1"],
]

STDIN = b"given on standard input\n"


def fill(folder: Path) -> None:
    (folder / "folder" / "inner").mkdir(parents=True)
    (folder / "data").write_bytes(bytes(range(256)) * 700 + b"odd")
    (folder / "log").write_bytes(b"one\ntwo\nthree\nand no newline")
    (folder / "empty").touch()
    (folder / ".hidden").write_text("x")
    (folder / "folder" / "inner" / "file").write_text("deep")
    (folder / "link").symlink_to("data")
    (folder / "dangling").symlink_to("nowhere")
    for item in folder.rglob("*"):
        os.utime(item, (1_700_000_000, 1_700_000_001), follow_symlinks=False)


def words(line: str, folder: Path) -> list[str]:
    return [re.sub(r"(^|=)F(?=/|$)", lambda found: f"{found[1]}{folder}", word) for word in shlex.split(line)]


def shown(folder: Path) -> dict[str, object]:
    """What a folder holds: kinds, contents, link texts, and which names are one file."""
    inodes: dict[int, str] = {}
    found: dict[str, object] = {}
    for item in sorted(folder.rglob("*")):
        name = str(item.relative_to(folder))
        first = inodes.setdefault(item.lstat().st_ino, name)
        content = os.readlink(item) if item.is_symlink() else item.read_bytes() if item.is_file() else "folder"
        found[name] = (first, content)
    return found


def real(argv: list[str]) -> tuple[int, bytes, str]:
    need(shutil.which(argv[0]) is not None, argv[0])
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"}
    done = subprocess.run(argv, input=STDIN, capture_output=True, env=environment, check=False)
    return done.returncode, done.stdout, done.stderr.decode()


async def test_reading_commands_answer_as_the_real_ones(world: DemoWorld) -> None:
    folder = world.root / "lab" / "eval" / "F"
    fill(folder)
    wrong = []
    for line in READING:
        argv = words(line, folder)
        status, out, err = await asyncio.to_thread(real, argv)
        done = await world.hosts["lab"].run(argv, stdin=STDIN, check=False)
        phrases = ("No such file or directory", "Not a directory", "Is a directory")
        ours = (done.status, comparable(line, done.stdout), [phrase in done.stderr for phrase in phrases])
        if ours != (status, comparable(line, out), [phrase in err for phrase in phrases]):
            wrong.append((line, done, (status, out, err)))
    assert wrong == []


def comparable(line: str, out: bytes) -> object:
    if line.startswith("df"):
        # Space moves between two looks: its order of magnitude and the columns must agree.
        return [[word if word.isalpha() else len(word) > 0 for word in row.split()][1:] for row in out.splitlines()[1:]]
    return sorted(re.split(rb"[\0\n]", out)) if line.startswith(("find", "ls")) else out


@pytest.mark.parametrize("lines", CHANGING, ids=lambda lines: lines[0])
async def test_changing_commands_do_as_the_real_ones(world: DemoWorld, tmp_path: Path, lines: list[str]) -> None:
    ours, theirs = world.root / "ct200" / "F", tmp_path / "F"
    fill(ours)
    fill(theirs)
    for line in lines:
        status, out, err = await asyncio.to_thread(real, words(line, theirs))
        done = await world.hosts["ct200"].run(words(line, ours), stdin=STDIN, check=False)
        assert (done.status, done.stdout) == (status, out), (line, done, err)
        assert ("No such file" in done.stderr, "File exists" in done.stderr) == (
            "No such file" in err,
            "File exists" in err,
        ), (line, done.stderr, err)
        assert shown(ours) == shown(theirs), line


async def test_mv_n_never_replaces(world: DemoWorld) -> None:
    folder = world.root / "lab"
    (folder / "part").write_text("new")
    (folder / "final").write_text("old")
    await world.hosts["lab"].run(["mv", "-T", "-n", f"{folder}/part", f"{folder}/final"], check=False)
    assert ((folder / "part").read_text(), (folder / "final").read_text()) == ("new", "old")


async def test_tail_by_name_goes_on_with_the_new_file_and_loses_no_line(world: DemoWorld) -> None:
    path = world.root / "ct200" / "train.log"
    path.write_text("0\n")
    seen = b""
    async with world.hosts["ct200"].stream(["tail", "-c", "+1", "-F", str(path)]) as process:
        for number in range(1, 40):
            with path.open("a") as file:
                file.write(f"{number}\n")
            if number % 10 == 0:
                path.rename(path.with_suffix(f".{number}"))
                path.touch()
            await asyncio.sleep(0.02)
            while seen.count(b"\n") < number - 20:
                seen += await process.read()
        while seen.count(b"\n") < 40:
            seen += await asyncio.wait_for(process.read(), 5)
    assert seen.split() == [str(number).encode() for number in range(40)]


async def test_tail_starts_over_when_the_file_was_cut(world: DemoWorld) -> None:
    path = world.root / "lab" / "cut.log"
    path.write_text("a long first life\n")
    async with world.hosts["lab"].stream(["tail", "-c", "+1", "-f", str(path)]) as process:
        assert await process.read() == b"a long first life\n"
        path.write_text("short\n")
        assert await asyncio.wait_for(process.read(), 5) == b"short\n"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("stat -c '%f %s' /a/b", ""),
        ("find x -exec stat '{}' +", ""),
        ("cat 'a|b' 'it'\"'\"'s $x'", ""),
        (r"cat a\;b", ""),
        ('cat "a;b"', ""),
        ('cat "$x"', "$"),
        (r'cat "\$x"', ""),
        ("cat 'a' | b", "|"),
        ("cat a;b", ";"),
    ],
)
def test_only_what_is_not_quoted_is_shell_syntax(line: str, found: str) -> None:
    assert shell_syntax(line) == found
