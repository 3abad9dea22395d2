"""The commands of a demo host that look at directory entries, with GNU's and busybox's options and words."""

from __future__ import annotations

import contextlib
import os
import stat as modes
from collections.abc import Callable, Sequence

from dflash_tui.demo.commands import Answer, Misused, Short, options
from dflash_tui.demo.confine import Folder

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


def stat(folder: Folder, words: Sequence[str]) -> Answer:
    """`stat [-L] -c FORMAT FILE...`"""
    flags, paths = options(words, "Lc:", ["dereference", "format="])
    form = flags.get("-c", flags.get("--format"))
    if form is None:
        raise Misused("only `stat [-L] -c FORMAT FILE...` is known here")
    follow = "-L" in flags or "--dereference" in flags
    answer = Answer()
    for path in paths:
        try:
            found = os.stat(folder.resolve(path)) if follow else os.lstat(folder.entry(path))
        except OSError as error:
            answer.fail(f"cannot statx '{path}'", error)
        else:
            answer.out += _formatted(form, path, found) + "\n"
    return answer


def _formatted(form: str, path: str, found: os.stat_result) -> str:
    out = []
    letters = iter(form)
    for letter in letters:
        if letter != "%":
            out.append(letter)
            continue
        directive = next(letters, "%")
        known = _DIRECTIVES.get(directive)
        out.append(str(known(path, found)) if known else "%" if directive == "%" else "?")
    return "".join(out)


def find(folder: Folder, words: Sequence[str]) -> Answer:
    """`find PATH [-mindepth N] [-maxdepth N] [-type f|d|l] [-name NAME] [-print0 | -exec stat ... {} +]`"""
    rest = list(words)
    start = rest.pop(0) if rest and not rest[0].startswith("-") else "."
    asked = {"-mindepth": "0", "-maxdepth": "1000000", "-type": "", "-name": ""}
    end, command = "\n", list[str]()
    while rest:
        word = rest.pop(0)
        if word in asked and rest:
            asked[word] = rest.pop(0)
        elif word == "-exec" and rest[:1] == ["stat"] and rest[-2:] == ["{}", "+"]:
            command, rest = rest[1:-2], []
        elif word == "-print0":
            end = "\0"
        elif word != "-print":
            raise Misused(f"`{word}` is not known here, or not this way")
    if not (asked["-mindepth"].isdecimal() and asked["-maxdepth"].isdecimal()):
        raise Misused("expected a positive number after -mindepth and -maxdepth")
    answer = Answer()
    try:
        top = folder.resolve(start) if start.endswith("/") else folder.entry(start)
        info = os.lstat(top)
        if start.endswith("/") and not modes.S_ISDIR(info.st_mode):
            raise NotADirectoryError(20, "Not a directory")
    except OSError as error:
        answer.fail(f"'{start}'", error)
        return answer
    shown = [
        path
        for path, found in _walk(start, top, info, int(asked["-mindepth"]), int(asked["-maxdepth"]))
        if asked["-type"] in ("", _kind(found)[1]) and asked["-name"] in ("", os.path.basename(path))
    ]
    if not command:
        return Answer("".join(path + end for path in shown))
    return stat(folder, [*command, *shown]) if shown else answer


def _walk(start: str, top: str, info: os.stat_result, least: int, most: int) -> list[tuple[str, os.stat_result]]:
    """Path as shown and lstat of what lies `least` to `most` levels below, parents first; no link is followed."""
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


def ls(folder: Folder, words: Sequence[str]) -> Answer:
    """`ls [-1aA] [PATH]`"""
    flags, paths = options(words, "1aA")
    path = paths[0] if paths else "."
    try:
        names = sorted(os.listdir(folder.resolve(path)))
    except NotADirectoryError:
        return Answer(f"{path}\n")
    except OSError as error:
        return Answer("", [f"cannot access '{path}': {error.strerror}"], 2)
    hidden = "-a" in flags or "-A" in flags
    return Answer("".join(f"{name}\n" for name in names if hidden or not name.startswith(".")))


def readlink(folder: Folder, words: Sequence[str]) -> Answer:
    """`readlink [-f | -e] [-n] FILE`"""
    flags, paths = options(words, "fen")
    if len(paths) != 1:
        raise Misused("expected one file")
    try:
        text = folder.resolve(paths[0]) if "-f" in flags or "-e" in flags else os.readlink(folder.entry(paths[0]))
    except PermissionError:
        raise
    except OSError:
        return Answer(status=1)  # the real one says nothing either
    needed = text if "-e" in flags else os.path.dirname(text) if "-f" in flags else "/"
    if not os.path.lexists(needed):
        return Answer(status=1)
    return Answer(text if "-n" in flags else f"{text}\n")


def test(folder: Folder, words: Sequence[str]) -> Answer:
    """`test [!] -e|-f|-d|-L|-h|-s|-r|-w|-x FILE`"""
    wanted = words[:1] != ("!",)
    words = words if wanted else words[1:]
    if len(words) != 2 or words[0] not in _TESTS:
        return Answer("", ["only one test of one file is known here, as in `test -e FILE`"], 2)
    try:
        holds = _TESTS[words[0]](folder.entry(words[1]) if words[0] in ("-L", "-h") else folder.resolve(words[1]))
    except OSError:
        holds = False
    return Answer(status=0 if holds == wanted else 1)


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


def df(folder: Folder, words: Sequence[str]) -> Answer:
    """`df -P [-k | -i] PATH` and `df -B1 --output=avail PATH`"""
    flags, paths = options(words, "PkiB:", ["output=", "block-size="])
    if len(paths) != 1:
        raise Misused("expected one path")
    space = os.statvfs(folder.resolve(paths[0]))
    if "--output" in flags:
        unit = 1 if flags.get("-B", flags.get("--block-size")) == "1" else 1024
        return Answer(f"Avail\n{space.f_bavail * space.f_frsize // unit}\n")
    if "-i" in flags:
        head = "Filesystem Inodes IUsed IFree IUse% Mounted on"
        whole, used, free = space.f_files, space.f_files - space.f_ffree, space.f_ffree
        share = _share(used, whole)
    else:
        head = "Filesystem 1024-blocks Used Available Capacity Mounted on"
        whole, left, free = (n * space.f_frsize // 1024 for n in (space.f_blocks, space.f_bfree, space.f_bavail))
        used = whole - left
        share = _share(used, used + free)
    return Answer(f"{head}\ndemo {whole} {used} {free} {share} /\n")


def _kind(found: os.stat_result) -> tuple[str, str]:
    if modes.S_ISREG(found.st_mode) and not found.st_size:
        return "regular empty file", "f"
    return _KINDS.get(modes.S_IFMT(found.st_mode), ("weird file", "?"))


def _share(used: int, whole: int) -> str:
    return f"{-(-100 * used // whole)}%" if whole else "-"


ENTRIES: dict[str, Short] = {
    "df": df,
    "find": find,
    "ls": ls,
    "readlink": readlink,
    "stat": stat,
    "test": test,
}
