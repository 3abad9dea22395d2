"""The commands of a demo host that change directory entries, with GNU's and busybox's options and words."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence

from dflash_tui.demo.commands import Answer, Misused, Short, options
from dflash_tui.demo.confine import Folder


def mkdir(folder: Folder, words: Sequence[str]) -> Answer:
    """`mkdir [-p] FOLDER...`"""
    flags, paths = options(words, "p", ["parents"])
    answer = Answer()
    for path in paths:
        try:
            if flags:
                os.makedirs(folder.resolve(path), exist_ok=True)
            else:
                os.mkdir(folder.entry(path))
        except OSError as error:
            answer.fail(f"cannot create directory '{path}'", error)
    return answer


def rm(folder: Folder, words: Sequence[str]) -> Answer:
    """`rm [-f] [-r] PATH...`"""
    flags, paths = options(words, "frR", ["force", "recursive"])
    answer = Answer()
    for path in paths:
        try:
            real = folder.entry(path)
            if real == folder.root:
                raise PermissionError(13, "Permission denied")
            if {"-r", "-R", "--recursive"} & flags.keys() and os.path.isdir(real) and not os.path.islink(real):
                shutil.rmtree(real)
            else:
                os.unlink(real)
        except OSError as error:
            if not isinstance(error, FileNotFoundError) or not {"-f", "--force"} & flags.keys():
                answer.fail(f"cannot remove '{path}'", error)
    return answer


def mv(folder: Folder, words: Sequence[str]) -> Answer:
    """`mv [-f] [-n] [-T] SOURCE TARGET`. As GNU's before 9.2, `-n` onto what exists does nothing and ends with 0."""
    flags, paths = options(words, "fnT", ["no-clobber", "no-target-directory", "force"])
    source, target = _pair(folder, flags, paths)
    if "-n" not in flags and "--no-clobber" not in flags:
        os.rename(source, target)
    elif os.path.isdir(source):
        if not os.path.lexists(target):
            os.rename(source, target)
    else:
        # A hard link refuses a taken name in one step; looking first and renaming then would not.
        with contextlib.suppress(FileExistsError):
            os.link(source, target, follow_symlinks=False)
            os.unlink(source)
    return Answer()


def ln(folder: Folder, words: Sequence[str]) -> Answer:
    """`ln [-f] [-T] SOURCE TARGET` (a hard link), or `ln -s TEXT TARGET`, whose text must stay within the folder."""
    flags, paths = options(words, "sfT", ["symbolic", "force", "no-target-directory"])
    if ("-s" in flags or "--symbolic" in flags) and len(paths) == 2:
        target = folder.entry(paths[1])
        folder.resolve(os.path.join(os.path.dirname(target), paths[0]))
        os.symlink(paths[0], target)
        return Answer()
    source, target = _pair(folder, flags, paths)
    answer = Answer()
    try:
        if os.path.isdir(source):
            raise PermissionError(1, "Operation not permitted")
        if "-f" in flags or "--force" in flags:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(target)
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        answer.fail(f"failed to create hard link '{paths[1]}' => '{paths[0]}'", error)
    return answer


def cp(folder: Folder, words: Sequence[str]) -> Answer:
    """`cp [-p] [-f] [-T] [--reflink=auto] SOURCE TARGET`, of one file."""
    flags, paths = options(words, "pfT", ["reflink=", "no-target-directory", "force"])
    source, target = _pair(folder, flags, paths)
    (shutil.copy2 if "-p" in flags else shutil.copyfile)(folder.resolve(source), folder.resolve(target))
    return Answer()


def _pair(folder: Folder, flags: Mapping[str, str], paths: Sequence[str]) -> tuple[str, str]:
    """The real paths of source and target entries; a target that is a folder means a name in it, unless `-T`."""
    if len(paths) != 2:
        raise Misused("expected a source and a target")
    source = folder.entry(paths[0])
    try:
        os.lstat(source)
    except OSError as error:
        raise Misused(f"cannot stat '{paths[0]}': {error.strerror}") from error
    target = folder.entry(paths[1])
    if not {"-T", "--no-target-directory"} & flags.keys() and os.path.isdir(folder.resolve(paths[1])):
        target = folder.entry(os.path.join(paths[1], os.path.basename(source)))
    return source, target


CHANGES: dict[str, Short] = {
    "cp": cp,
    "ln": ln,
    "mkdir": mkdir,
    "mv": mv,
    "rm": rm,
}
