"""Files at fixed paths that a script may write to: put aside before it begins, back in place when it has ended.

Where the run directory lies on the same file system, the old file itself is put aside by a hard link and its path gets
a copy. What the script does to the path then reaches neither the old file nor its other names, and what comes back is
the old file, with owner, times, attributes and links. Elsewhere its bytes are copied, and come back as a file.

`external.json` is written before each stage (see `records.external.Journal`); every step of `put_back` may be
interrupted and done again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from dflash_tui.harness.errors import HarnessError
from dflash_tui.records.external import Guarded

KEPT, WRITTEN, _COPY = "kept", "written", ".copy"
CHUNK = 1 << 20
_CLONE = 0x40049409  # FICLONE: a copy that shares its bytes until either side changes


@dataclass(frozen=True)
class Back:
    """What became of one path: `moved` is true when the script had written there, `sentences` are for the log."""

    file: Guarded
    moved: bool
    sentences: tuple[str, ...]


def describe(path: Path, number: int, run_dir: Path) -> list[Guarded]:
    """The path as it is now; a symbolic link and the file it leads to are two. Raises HarnessError with the sentence
    that refuses it."""
    path = Path(os.path.realpath(path.parent)) / path.name
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return [_absent(path, number)]
    except OSError as error:
        raise HarnessError(f"{path}: can't be looked at ({error.strerror}), so it can't be kept safe") from error
    if stat.S_ISLNK(found.st_mode):
        _check_folder(path)
        link = Guarded(os.fspath(path), "link", written=_named(WRITTEN, number, path), target=os.readlink(path))
        leads = Path(os.path.realpath(path))
        if leads.is_symlink():
            raise HarnessError(f"{path}: is a symbolic link that leads back to itself")
        return [link, *describe(leads, number + 1, run_dir)]
    if stat.S_ISDIR(found.st_mode):
        raise HarnessError(f"{path}: is a folder, expected a file; name the file in it under harness.results")
    if not stat.S_ISREG(found.st_mode):
        raise HarnessError(f"{path}: is no regular file, so what it holds can't be kept safe")
    _check_folder(path)
    stays = _stays(path, found)
    linkable = found.st_dev == os.stat(run_dir).st_dev and not stays
    if not linkable and not stays and found.st_nlink > 1:
        raise HarnessError(
            f"{path}: has {found.st_nlink} hard links and lies on another file system than {run_dir}, so its other "
            "names can't be kept safe; unlink it, or put evaluation.root on its file system"
        )
    try:
        digest = sha256(path)
    except OSError as error:
        raise HarnessError(f"{path}: can't be read ({error.strerror}), so it can't be kept safe") from error
    return [
        Guarded(
            os.fspath(path), "file", _named(KEPT, number, path), _named(WRITTEN, number, path),
            "link" if linkable else "copy", digest, found.st_size, stat.S_IMODE(found.st_mode), found.st_uid,
            found.st_gid, found.st_mtime_ns,
        )
    ]  # fmt: skip


def put_aside(run_dir: Path, file: Guarded) -> Guarded:
    """Keep the old bytes in the run directory. Raises HarnessError; what was done until then `put_back` undoes."""
    if file.kind != "file":
        return file
    path, kept = Path(file.path), run_dir / file.kept
    kept.parent.mkdir(exist_ok=True)
    try:
        if file.how == "link":
            try:
                os.link(path, kept)
            except OSError:
                if os.stat(path).st_nlink > 1:
                    raise
                # Hard links to others' files may be forbidden. Under another name: until the journal knows, what is
                # kept under this one is taken for the old file itself.
                file = replace(file, how="copy", kept=file.kept + _COPY)
                kept = run_dir / file.kept
        if file.how == "link":
            part = _beside(run_dir, path, "part")
            _copy(path, part, file)
            os.replace(part, path)
        else:
            _copy(path, kept.with_name(f".{kept.name}.part"), file)
            os.replace(kept.with_name(f".{kept.name}.part"), kept)
        sync(kept.parent)
        now = sha256(kept)  # something else may write to it; what was put aside itself has that, too
        if now != file.sha256 and file.how == "copy":
            raise HarnessError(f"{path}: changed while it was put aside; something else writes to it, try again")
        return replace(file, sha256=now, mark=mark(path))
    except OSError as error:
        raise HarnessError(f"{path}: can't be kept safe in {kept.parent} ({error.strerror})") from error


def put_back(run_dir: Path, file: Guarded, *, begun: bool) -> Back:
    """Take what the script wrote into the run and let the old file be there again. `begun`: the script may have run.

    Raises HarnessError; nothing is lost then, and it may be called again.
    """
    path = Path(file.path)
    try:
        for ending in ("part", "back"):
            _beside(run_dir, path, ending).unlink(missing_ok=True)
        if file.kind == "file":
            return _file_back(run_dir, file, begun)
        return _name_back(run_dir, file) if begun else Back(file, False, ())
    except OSError as error:
        raise HarnessError(
            f"{path}: its old bytes can't be put back ({error.strerror}); they lie in {run_dir / file.kept}"
        ) from error


def _file_back(run_dir: Path, file: Guarded, begun: bool) -> Back:
    path, kept = Path(file.path), run_dir / file.kept
    if not kept.exists():  # never put aside (of a copy the journal may not know yet), or back already
        kept.with_name(kept.name + _COPY).unlink(missing_ok=True)
        return Back(file, (run_dir / file.written).exists(), ())
    here = _lstat(path)
    is_old = here is not None and _is_old(path, here, kept, file)
    touched = begun and not is_old and (here is None or mark(path) != file.mark)
    stays = here is not None and _stays(path, here)
    taken = stays and (run_dir / file.written).exists()  # what is half written over must not be taken for the script's
    moved = touched and here is not None and (taken or _take(run_dir, path, file.written))
    if not is_old and (file.how == "link" or touched):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = _beside(run_dir, path, "back")
        if stays:
            _overwrite(kept, path)
        else:
            if file.how == "link":
                os.link(kept, part)
            else:
                _copy(kept, part, file)
            os.replace(part, path)
            sync(path.parent)
    said = [f"{path}: what the script wrote there lies in {run_dir / file.written}"] if moved else []
    if sha256(path) == file.sha256:
        said += [f"{path}: is as it was before, sha256 {file.sha256[:16]}"] if touched else []
    elif file.how == "link":
        said.append(f"{path}: was written to by something else meanwhile, by another name or an open file; that stayed")
    else:
        raise HarnessError(f"{path}: does not hold its old bytes, sha256 {file.sha256[:16]}; they lie in {kept}")
    kept.unlink()
    return Back(file, bool(moved), tuple(said))


def _is_old(path: Path, here: os.stat_result, kept: Path, file: Guarded) -> bool:
    """Whether the old file is there: itself, or the same bytes of the same time where only those were kept."""
    if file.how == "link":
        return os.path.samestat(here, os.stat(kept))
    same = here.st_size == file.size and (here.st_mtime_ns == file.mtime_ns or _stays(path, here))
    return stat.S_ISREG(here.st_mode) and same and sha256(path) == file.sha256


def _name_back(run_dir: Path, file: Guarded) -> Back:
    """A path where there was nothing, or a symbolic link."""
    path, written = Path(file.path), run_dir / file.written
    here = _lstat(path)
    same = here is not None and stat.S_ISLNK(here.st_mode) and file.kind == "link" and os.readlink(path) == file.target
    if same or (here is None and file.kind == "absent"):
        _fold(file)
        return Back(file, written.exists(), ())
    if here is not None and written.exists() and not _same_bytes(path, written):
        return Back(file, True, (f"{path}: was written again after the run; that is left there",))
    moved = here is not None and _take(run_dir, path, file.written)
    path.unlink(missing_ok=True)
    said = [f"{path}: what the script wrote there lies in {written}"] if moved else []
    if file.kind == "link":
        part = _beside(run_dir, path, "back")
        os.symlink(file.target, part)
        os.replace(part, path)
        said.append(f"{path}: leads to {file.target} again")
    elif moved:
        said.append(f"{path}: is not there, as before")
    _fold(file)
    _sync_nearest(path.parent)
    return Back(file, bool(moved), tuple(said))


def _fold(file: Guarded) -> None:
    """Take away the folders that were missing before and are empty now."""
    for folder in file.folders:
        with contextlib.suppress(OSError):  # something lies in it
            os.rmdir(folder)


def sha256(path: Path) -> str:
    """The hash of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def mark(path: Path) -> tuple[int, ...]:
    """What changes when a path's file is written to or replaced: inode, size, modification time in nanoseconds."""
    found = os.lstat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns


def copied(source: Path, target: Path) -> None:
    """The bytes of `source` in a new file, on the disk: shared where the file system can, else copied."""
    with source.open("rb") as reader, target.open("wb") as writer:
        try:
            fcntl.ioctl(writer.fileno(), _CLONE, reader.fileno())
        except OSError:
            shutil.copyfileobj(reader, writer, CHUNK)
        writer.flush()
        os.fsync(writer.fileno())


def sync(folder: Path) -> None:
    """The names in a folder, on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _take(run_dir: Path, path: Path, name: str) -> bool:
    """What lies at `path`, by its content, as `name` in the run; false for a link to nothing. The path may keep it."""
    written = run_dir / name
    written.parent.mkdir(exist_ok=True)
    part = written.with_name(f".{written.name}.part")
    part.unlink(missing_ok=True)
    if path.is_dir():
        if not written.exists():
            shutil.copytree(path, written, symlinks=True)
        shutil.rmtree(path) if not path.is_symlink() else path.unlink()
        return True
    if not path.is_file():
        path.unlink(missing_ok=True)
        return False
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or found.st_uid != os.geteuid():
            raise OSError(errno.EMLINK, "somebody may go on writing to it")
        os.link(path, part)  # a script that has filled the disk must not keep the old file from coming back
    except OSError:
        copied(path, part)
    os.replace(part, written)
    sync(written.parent)
    return True


def _copy(source: Path, target: Path, file: Guarded) -> None:
    target.unlink(missing_ok=True)
    copied(source, target)
    with contextlib.suppress(PermissionError):  # another user's file stays readable as it was
        os.chown(target, file.uid, file.gid)
    os.chmod(target, file.mode)
    os.utime(target, ns=(file.mtime_ns, file.mtime_ns))


def _overwrite(source: Path, target: Path) -> None:
    with source.open("rb") as reader, target.open("r+b") as writer:
        shutil.copyfileobj(reader, writer, CHUNK)
        writer.truncate()
        writer.flush()
        os.fsync(writer.fileno())


def _absent(path: Path, number: int) -> Guarded:
    folders: list[str] = []
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folders.append(os.fspath(folder))
        folder = folder.parent
    if not folder.is_dir():
        raise HarnessError(f"{path}: {folder} is no folder")
    return Guarded(os.fspath(path), "absent", written=_named(WRITTEN, number, path), folders=tuple(folders))


def _check_folder(path: Path) -> None:
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise HarnessError(
            f"{path.parent}: this user may not write there, so the old bytes of {path.name} could not be put back; "
            "allow it, or let the script write elsewhere"
        )


def _stays(path: Path, found: os.stat_result) -> bool:
    """Whether nobody but others may replace the file: it is another's, in a folder with a sticky bit, as /tmp is. It
    can only be written to, by the script as by us."""
    folder = os.stat(path.parent)
    return bool(folder.st_mode & stat.S_ISVTX) and os.geteuid() not in (0, found.st_uid, folder.st_uid)


def _named(folder: str, number: int, path: Path) -> str:
    return f"{folder}/{number}-{path.name}"


def _beside(run_dir: Path, path: Path, ending: str) -> Path:
    return path.with_name(f".{path.name}.{run_dir.name}.{ending}"[-255:])


def _same_bytes(path: Path, other: Path) -> bool:
    return path.is_file() and other.is_file() and sha256(path) == sha256(other)


def _lstat(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _sync_nearest(folder: Path) -> None:
    while not folder.is_dir():
        folder = folder.parent
    sync(folder)
