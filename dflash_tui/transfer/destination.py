"""The folder that files are going to lie in: made before a byte moves, or refused at once with the reason."""

from __future__ import annotations

from dflash_tui.hosts.base import FileMissing, Host, HostError, HostUnreachable, PermissionRefused
from dflash_tui.transfer.errors import TransferError


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


async def refuse_without_a_place(host: Host, folder: str) -> None:
    """Raise TransferError when the folder can't be made for another reason than room: filesystems that hold nobody's
    files (/proc) tell 0 bytes free, which is not what is wrong with them."""
    try:
        await host.make_folder(folder)
    except (FileMissing, PermissionRefused) as error:
        raise _refused(host, folder, error) from error
    except HostError:
        return


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
        f"{host.name}:{folder} {said}; set evaluation.root to a folder that this user can write on {host.name}"
    )
