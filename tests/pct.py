"""A stand-in for Proxmox's `pct`: container 200 runs in a busybox chroot, 201 is stopped, others don't exist.

Words and statuses are those of pve-container; `exec` becomes the program, with the caller's streams and no shell.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from tests.sshd import need

_SCRIPT = """#!/bin/sh
case "$1" in
  list) printf 'VMID       Status     Lock         Name\\n200        running                 train\\n'
        printf '201        stopped                 idle\\n'; exit 0 ;;
  status|exec) ;;
  *) echo "ERROR: unknown command 'pct $1'" >&2; exit 255 ;;
esac
command=$1; id=$2
case "$id" in
  200) state=$(cat @ROOT@.state) ;;
  201) state=stopped ;;
  *) echo "Configuration file 'nodes/pve/lxc/$id.conf' does not exist" >&2; exit 2 ;;
esac
if [ "$command" = status ]; then echo "status: $state"; exit 0; fi
[ "$state" = running ] || { echo "container '$id' not running!" >&2; exit 255; }
shift 2
[ "$1" = -- ] && shift
PATH=$PATH:/usr/sbin:/sbin
exec env -i PATH=/bin LC_ALL=C "$(command -v chroot)" @ROOT@ "$@"
"""

_APPLETS = "cat cp dd df echo env find kill ln mkdir mv printf readlink rm sh sha256sum sleep stat sync test touch"


class Pct:
    """`path` is the executable; `root` the running container's root folder, as this machine sees it."""

    def __init__(self, folder: Path) -> None:
        busybox = shutil.which("busybox")
        need(busybox is not None, "busybox-static")
        need(os.geteuid() == 0, "chroot, which needs root,")
        assert busybox is not None
        self.path = folder / "pct"
        self.root = folder / "rootfs"
        for name in ("bin", "data", "proc"):
            (self.root / name).mkdir(parents=True)
        shutil.copy(busybox, self.root / "bin" / "busybox")
        for applet in _APPLETS.split():
            (self.root / "bin" / applet).symlink_to("busybox")
        # busybox df finds mount points there.
        (self.root / "proc" / "mounts").write_text("/dev/root / ext4 rw 0 0\n")
        self.path.write_text(_SCRIPT.replace("@ROOT@", str(self.root)))
        self.path.chmod(self.path.stat().st_mode | stat.S_IXUSR)
        self.set_state("running")

    def set_state(self, state: str) -> None:
        """Stop or start container 200."""
        self.root.with_name(self.root.name + ".state").write_text(state)

    def prefix(self, container: int = 200) -> tuple[str, ...]:
        """What goes before a command."""
        return (str(self.path), "exec", str(container), "--")
