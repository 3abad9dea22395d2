"""The folder that files are going to lie in: made before a byte moves, or refused at once with the reason."""

from __future__ import annotations

from dflash_tui.hosts.base import FileMissing, Host, HostError, HostUnreachable, PermissionRefused
from dflash_tui.transfer.errors import TransferError

_NO_FOLDER, _NO_LEAVE = 71, 72
_NEAREST = f"""
near=$1
while [ -n "$near" ] && [ ! -e "$near" ] && [ ! -L "$near" ]; do near=${{near%/*}}; done
near=${{near:-/}}
printf '%s\\n' "$near"
[ -d "$near" ] || exit {_NO_FOLDER}
[ -w "$near" ] && [ -x "$near" ] || exit {_NO_LEAVE}
"""


async def make_destination(host: Host, folder: str) -> None:
    """Make a folder with its parents where it is not there yet, and see that files can be made in it.

    Raises HostUnreachable, which is worth another try, and TransferError, which is not.
    """
    try:
        await host.make_folder(folder)
    except HostUnreachable:
        raise
    except HostError as error:
        raise _refused(host, folder, error) from error
    if (await host.run(["test", "-w", folder], timeout=30, check=False)).status == 1:
        raise _sentence(host, folder, "is there, and this user may not write in it")


async def refuse_what_can_t_be_made(host: Host, folder: str) -> None:
    """Raise TransferError when a folder can be neither made nor written, as far as that shows without trying: the
    nearest one that is there must be a folder in which this user may make something."""
    done = await host.run(["sh", "-c", _NEAREST, "dflash", folder.rstrip("/")], timeout=30, check=False)
    near = done.text.rstrip("\n")
    if done.status == _NO_FOLDER:
        raise _sentence(host, folder, f"can't be made: {near} is no folder")
    if done.status == _NO_LEAVE and near == folder.rstrip("/"):
        raise _sentence(host, folder, "is there, and this user may not write in it")
    if done.status == _NO_LEAVE:
        there = near == folder.rstrip("/")
        said = "is there, and this user may not write in it" if there else f"can't be made: no writing in {near}"
        raise _sentence(host, folder, said)


async def refuse_without_a_place(host: Host, folder: str) -> None:
    """Raise TransferError when the folder can't be made for another reason than room: filesystems that hold nobody's
    files (/proc) tell 0 bytes free, which is not what is wrong with them."""
    try:
        await host.make_folder(folder)
    except (FileMissing, PermissionRefused) as error:
        raise _refused(host, folder, error) from error
    except HostError:
        return


def is_a_folder(host: Host, path: str, why: str) -> TransferError:
    """What to say of a folder that has a name which a transfer needs for a file of its own."""
    return TransferError(f"{host.name}:{path} is a folder, and {why}; move it away or name another folder")


def _refused(host: Host, folder: str, error: HostError) -> TransferError:
    match error:
        case PermissionRefused():
            reason = "this user may not write there"
        case FileMissing():
            reason = "no folder can be made there"
        case _:
            reason = str(error).removeprefix(f"{host.name}: ")
    return _sentence(host, folder, f"can't be made: {reason}")


def _sentence(host: Host, folder: str, said: str) -> TransferError:
    return TransferError(
        f"{host.name}:{folder} {said}; name a folder that this user can write on {host.name}, with --to or as "
        "evaluation.root"
    )
