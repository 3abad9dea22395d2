"""The commands of a demo host that look at and change directory entries, with GNU's and busybox's options and words."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat as modes
from collections.abc import Callable, Sequence
from dataclasses import replace

from dflash_tui.demo.commands import Call, Command, run
from dflash_tui.demo.confine import Folder
from dflash_tui.demo.contents import options

_KINDS = {
    modes.S_IFREG: ("regular file", "f"),
    modes.S_IFDIR: ("directory", "d"),
    modes.S_IFLNK: ("symbolic link", "l"),
    modes.S_IFIFO: ("fifo", "p"),
    modes.S_IFSOCK: ("socket", "s"),
}

_DIRECTIVES: dict[str, Callable[[str, os.stat_result], object]] = {
    "f": lambda path, found: format(found.st_mode, "x"),
    "a": lambda path, found: format(modes.S_IMODE(found.st_mode), "o"),
    "A": lambda path, found: modes.filemode(found.st_mode),
    "s": lambda path, found: found.st_size,
    "b": lambda path, found: found.st_blocks,
    "B": lambda path, found: 512,
    "d": lambda path, found: found.st_dev,
    "i": lambda path, found: found.st_ino,
    "h": lambda path, found: found.st_nlink,
    "n": lambda path, found: path,
    "u": lambda path, found: found.st_uid,
    "g": lambda path, found: found.st_gid,
    "F": lambda path, found: _kind(found)[0],
    "X": lambda path, found: int(found.st_atime),
    "Y": lambda path, found: int(found.st_mtime),
    "Z": lambda path, found: int(found.st_ctime),
}


def _kind(found: os.stat_result) -> tuple[str, str]:
    return _KINDS.get(modes.S_IFMT(found.st_mode), ("weird file", "?"))


def _formatted(form: str, path: str, found: os.stat_result) -> str:
    parts = form.replace("%%", "\0").split("%")
    out = [parts[0]]
    for part in parts[1:]:
        out.append(str(_DIRECTIVES[part[0]](path, found)) if part[:1] in _DIRECTIVES else "?")
        out.append(part[1:])
    return "".join(out).replace("\0", "%")


async def stat(call: Call) -> int:
    """`stat [-L] -c FORMAT FILE...`"""
    found = await options(call, "Lc:", ["dereference", "format="])
    if found is None:
        return 1
    flags = dict(found[0])
    form = flags.get("-c", flags.get("--format"))
    if form is None:
        await call.complain("only `stat [-L] -c FORMAT FILE...` is known here")
        return 1
    follow = "-L" in flags or "--dereference" in flags
    status = 0
    for path in found[1]:
        try:
            entry = os.stat(_folder(call).resolve(path)) if follow else os.lstat(_entry(call, path))
        except OSError as error:
            await call.complain(f"cannot statx '{path}': {error.strerror}")
            status = 1
            continue
        await call.stdout.write(os.fsencode(_formatted(form, path, entry) + "\n"))
    return status


async def find(call: Call) -> int:
    """`find PATH [-mindepth N] [-maxdepth N] [-type f|d|l] [-name NAME] [-print0 | -exec COMMAND... {} +]`"""
    words = list(call.argv[1:])
    start = words.pop(0) if words and not words[0].startswith("-") else "."
    least, most, kind, name, command, end = 0, 1 << 30, "", "", list[str](), "\n"
    while words:
        word = words.pop(0)
        if word in ("-mindepth", "-maxdepth", "-type", "-name") and words:
            value = words.pop(0)
            if word in ("-type", "-name"):
                kind, name = (value, name) if word == "-type" else (kind, value)
            elif value.isdecimal():
                least, most = (int(value), most) if word == "-mindepth" else (least, int(value))
        elif word == "-exec" and words[-2:] == ["{}", "+"]:
            command, words = words[:-2], []
        elif word in ("-print", "-print0"):
            end = "\0" if word == "-print0" else "\n"
        else:
            await call.complain(f"unknown predicate '{word}'")
            return 1
    try:
        top = _folder(call).resolve(start) if start.endswith("/") else _entry(call, start)
        info = os.lstat(top)
        if start.endswith("/") and not modes.S_ISDIR(info.st_mode):
            raise NotADirectoryError(20, "Not a directory")
    except OSError as error:
        await call.complain(f"'{start}': {error.strerror}")
        return 1
    found = await asyncio.to_thread(_walk, start, top, info, least, most)
    shown = [path for path, kept in found if kind in ("", _kind(kept)[1]) and name in ("", os.path.basename(path))]
    if not command:
        await call.stdout.write(os.fsencode("".join(path + end for path in shown)))
        return 0
    if not shown:
        return 0
    if command[0] not in call.side.commands:
        await call.complain(f"'{command[0]}': No such file or directory")
        return 1
    return min(1, await run(replace(call, argv=(*command, *shown))))


def _walk(start: str, top: str, info: os.stat_result, least: int, most: int) -> list[tuple[str, os.stat_result]]:
    """Path as shown and lstat of everything from `least` to `most` levels below, parents first; links are not followed."""
    found = []
    waiting = [(start, top, info, 0)]
    while waiting:
        shown, real, entry, depth = waiting.pop()
        if depth >= least:
            found.append((shown, entry))
        if depth < most and modes.S_ISDIR(entry.st_mode):
            with contextlib.suppress(OSError):
                for name in sorted(os.listdir(real), reverse=True):
                    inner = os.path.join(real, name)
                    # It may vanish between its name and its stat: a training folder lives.
                    with contextlib.suppress(FileNotFoundError):
                        waiting.append((os.path.join(shown, name), inner, os.lstat(inner), depth + 1))
    return found


async def ls(call: Call) -> int:
    """`ls [-1aA] [PATH]`"""
    found = await options(call, "1aA")
    if found is None:
        return 2
    path = found[1][0] if found[1] else "."
    try:
        names = sorted(os.listdir(_folder(call).resolve(path)))
    except NotADirectoryError:
        names = [path]
    except OSError as error:
        await call.complain(f"cannot access '{path}': {error.strerror}")
        return 2
    hidden = bool(found[0]) and any(flag in ("-a", "-A") for flag, _ in found[0])
    shown = [name for name in names if hidden or not name.startswith(".")]
    await call.stdout.write(os.fsencode("".join(f"{name}\n" for name in shown)))
    return 0


async def readlink(call: Call) -> int:
    """`readlink [-f | -e] [-n] FILE`"""
    found = await options(call, "fen")
    if found is None or len(found[1]) != 1:
        return 1
    flags = {flag for flag, _ in found[0]}
    path = found[1][0]
    try:
        text = _folder(call).resolve(path) if flags & {"-f", "-e"} else os.readlink(_entry(call, path))
    except OSError as error:
        # As the real one: silent, unless it is a refusal that the user could not guess.
        if isinstance(error, PermissionError):
            await call.complain(f"{path}: {error.strerror}")
        return 1
    missing = not os.path.lexists(text if "-e" in flags else os.path.dirname(text))
    if flags & {"-f", "-e"} and missing:
        return 1
    await call.stdout.write(os.fsencode(text + ("" if "-n" in flags else "\n")))
    return 0


async def test(call: Call) -> int:
    """`test -e|-f|-d|-L|-h|-s|-r|-w|-x FILE`, and `!` before it."""
    words = list(call.argv[1:])
    wanted = words[:1] != ["!"]
    words = words if wanted else words[1:]
    if len(words) != 2 or words[0] not in _TESTS:
        await call.complain("only one test of one file is known here, as in `test -e FILE`")
        return 2
    try:
        path = _entry(call, words[1]) if words[0] in ("-L", "-h") else _folder(call).resolve(words[1])
        holds = _TESTS[words[0]](path)
    except OSError:
        holds = False
    return 0 if holds == wanted else 1


_TESTS: dict[str, Callable[[str], bool]] = {
    "-e": os.path.exists,
    "-f": os.path.isfile,
    "-d": os.path.isdir,
    "-L": os.path.islink,
    "-h": os.path.islink,
    "-s": lambda path: os.stat(path).st_size > 0,
    "-r": lambda path: os.access(path, os.R_OK),
    "-w": lambda path: os.access(path, os.W_OK),
    "-x": lambda path: os.access(path, os.X_OK),
}


async def mkdir(call: Call) -> int:
    """`mkdir [-p] FOLDER...`"""
    found = await options(call, "p", ["parents"])
    if found is None:
        return 1
    for path in found[1]:
        try:
            if found[0]:
                os.makedirs(_folder(call).resolve(path), exist_ok=True)
            else:
                os.mkdir(_entry(call, path))
        except OSError as error:
            await call.complain(f"cannot create directory '{path}': {error.strerror}")
            return 1
    return 0


async def rm(call: Call) -> int:
    """`rm [-f] [-r] PATH...`"""
    found = await options(call, "frR", ["force", "recursive"])
    if found is None:
        return 1
    flags = {flag for flag, _ in found[0]}
    status = 0
    for path in found[1]:
        try:
            real = _entry(call, path)
            if real == call.side.folder.root:
                raise PermissionError(13, "Permission denied")
            if flags & {"-r", "-R", "--recursive"} and os.path.isdir(real) and not os.path.islink(real):
                await asyncio.to_thread(shutil.rmtree, real)
            else:
                os.unlink(real)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and flags & {"-f", "--force"}:
                continue
            await call.complain(f"cannot remove '{path}': {error.strerror}")
            status = 1
    return status


async def mv(call: Call) -> int:
    """`mv [-f] [-n] [-T] SOURCE TARGET`. As GNU's before 9.2, `-n` over something that exists does nothing and says 0."""
    pair = await _pair(call, "fnT", ["no-clobber", "no-target-directory", "force"])
    if pair is None:
        return 1
    flags, source, target = pair
    if flags & {"-n", "--no-clobber"}:
        if os.path.lexists(target):
            return 0
        if not os.path.isdir(source):
            # A hard link refuses an existing name in one step, where looking first and renaming then would not.
            os.link(source, target, follow_symlinks=False)
            os.unlink(source)
            return 0
    os.rename(source, target)
    return 0


async def ln(call: Call) -> int:
    """`ln [-f] [-T] SOURCE TARGET` (a hard link) and `ln -s TEXT TARGET`, whose text must not lead out of the folder."""
    found = await options(call, "sfT", ["symbolic", "force", "no-target-directory"])
    if found is not None and {flag for flag, _ in found[0]} & {"-s", "--symbolic"} and len(found[1]) == 2:
        text, path = found[1]
        target = _entry(call, path)
        _folder(call).resolve(os.path.join(os.path.dirname(target), text))
        os.symlink(text, target)
        return 0
    pair = await _pair(call, "fT", ["force", "no-target-directory"])
    if pair is None:
        return 1
    flags, source, target = pair
    if flags & {"-f", "--force"}:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(target)
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        await call.complain(f"failed to create hard link '{call.argv[-1]}' => '{call.argv[-2]}': {error.strerror}")
        return 1
    return 0


async def cp(call: Call) -> int:
    """`cp [-p] [-f] [-T] [--reflink=auto] SOURCE TARGET`, of one file."""
    pair = await _pair(call, "pfT", ["reflink=", "no-target-directory", "force"])
    if pair is None:
        return 1
    flags, source, target = pair
    copied = shutil.copy2 if "-p" in flags else shutil.copyfile
    await asyncio.to_thread(copied, _folder(call).resolve(source), _folder(call).resolve(target))
    return 0


async def _pair(call: Call, short: str, long: list[str]) -> tuple[set[str], str, str] | None:
    """Flags, and the real paths of source and target; a target that is a folder means an entry in it, unless `-T`."""
    found = await options(call, short, long)
    if found is None:
        return None
    if len(found[1]) != 2:
        await call.complain("expected a source and a target")
        return None
    flags = {flag for flag, _ in found[0]}
    source = _entry(call, found[1][0])
    try:
        os.lstat(source)
    except OSError as error:
        await call.complain(f"cannot stat '{found[1][0]}': {error.strerror}")
        return None
    target = _entry(call, found[1][1])
    if not flags & {"-T", "--no-target-directory"} and os.path.isdir(_folder(call).resolve(target)):
        target = _entry(call, os.path.join(target, os.path.basename(source)))
    return flags, source, target


async def df(call: Call) -> int:
    """`df -P [-k | -i] PATH` and `df -B1 --output=avail PATH`"""
    found = await options(call, "PkiB:", ["output=", "block-size="])
    if found is None or len(found[1]) != 1:
        return 1
    flags, path = dict(found[0]), found[1][0]
    try:
        space = os.statvfs(_folder(call).resolve(path))
    except OSError as error:
        await call.complain(f"{path}: {error.strerror}")
        return 1
    if "--output" in flags:
        unit = 1 if flags.get("-B", flags.get("--block-size")) == "1" else 1024
        rows: Sequence[Sequence[object]] = [("Avail",), (space.f_bavail * space.f_frsize // unit,)]
    elif "-i" in flags:
        used = space.f_files - space.f_ffree
        rows = [("Filesystem", "Inodes", "IUsed", "IFree", "IUse%", "Mounted", "on")]
        rows = [*rows, ("demo", space.f_files, used, space.f_ffree, _share(used, space.f_files), "/")]
    else:
        total, free, avail = (n * space.f_frsize // 1024 for n in (space.f_blocks, space.f_bfree, space.f_bavail))
        rows = [("Filesystem", "1024-blocks", "Used", "Available", "Capacity", "Mounted", "on")]
        rows = [*rows, ("demo", total, total - free, avail, _share(total - free, total - free + avail), "/")]
    await call.stdout.write("".join(" ".join(map(str, row)) + "\n" for row in rows).encode())
    return 0


def _share(used: int, whole: int) -> str:
    return f"{-(-100 * used // whole)}%" if whole else "-"


def _folder(call: Call) -> Folder:
    return call.side.folder


def _entry(call: Call, path: str) -> str:
    return call.side.folder.entry(path)


ENTRIES: dict[str, Command] = {
    "cp": cp,
    "df": df,
    "find": find,
    "ln": ln,
    "ls": ls,
    "mkdir": mkdir,
    "mv": mv,
    "readlink": readlink,
    "rm": rm,
    "stat": stat,
    "test": test,
}
