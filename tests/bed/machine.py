"""What stands in a namespace: an OpenSSH server with users, files and a host name of its own."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bed.network import Network
from tests.sshd import Sshd

_OWN = ("unshare", "--mount", "--uts")
# In a mount namespace of its own a machine has other files under some names, and nobody else sees that.
_ENTER = """hostname "$1"; shift
while [ "$1" != -- ]; do mount --bind "$1" "$2"; shift 2; done; shift
exec "$@"
"""


@dataclass(frozen=True)
class User:
    """A user of one machine, real there, with a uid of its own; the machine that runs the tests never sees it."""

    name: str
    uid: int
    home: Path
    shell: str = "/bin/sh"

    @property
    def line(self) -> str:
        """The user as /etc/passwd has it. "*": no password opens it, and it is not locked either."""
        return f"{self.name}:*:{self.uid}:{self.uid}:test bed:{self.home}:{self.shell}"


class Machine(Sshd):
    """An SSH server that listens at `address` in the network of the machine `name` and lets `user` in, nobody else."""

    def __init__(
        self,
        network: Network,
        name: str,
        address: str,
        folder: Path,
        user: User,
        *,
        binds: Mapping[Path, Path] | None = None,
        environment: Mapping[str, str] | None = None,
        extra: Sequence[str] = ("Subsystem sftp internal-sftp",),
    ) -> None:
        self.name, self.user, self.listens = name, user, address
        self._network = network
        passwd, group = folder / "passwd", folder / "group"
        own = [line for line in Path("/etc/passwd").read_text().splitlines() if line.split(":")[0] != user.name]
        passwd.write_text("\n".join([user.line, *own]) + "\n")
        groups = Path("/etc/group").read_text()
        group.write_text(groups if user.uid == 0 else f"{groups}{user.name}:x:{user.uid}:\n")
        mounts = {passwd: Path("/etc/passwd"), group: Path("/etc/group"), **(binds or {})}
        words = [os.fspath(path) for pair in mounts.items() for path in pair]
        super().__init__(
            folder,
            22,
            "\n".join([f"AllowUsers {user.name}", *extra]),
            address=address,
            entering=[*network.entering(name), *_OWN, "sh", "-ec", _ENTER, "enter", name, *words, "--"],
            environment={"HOME": os.fspath(user.home), **(environment or {})},
        )

    @property
    def known(self) -> str:
        """The line of known_hosts."""
        return f"{self.listens} {self.host_key}"

    def answers(self) -> bool:
        """Whether a connection is taken; asked on the machine itself, which others may not reach."""
        with self._network.entered(self.name):
            return super().answers()


def python_for_others(folder: Path, marks: Path) -> tuple[Path, Mapping[Path, Path]]:
    """A Python with this one's packages that any user may run, wherever this one lies; and what its machine binds.

    While `marks` holds the file `hold-launch`, an evaluation waits before it detaches; with `hold-evaluation`, when it
    opens the second prompt's hidden states. `at-launch` and `at-evaluation` tell that it has come so far; `launches`
    has a line for each evaluation that was started.
    """
    base, site = folder / "python", folder / "site"
    site.mkdir()
    packages = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    binds = {Path(sys.base_prefix): base} | {Path(path): folder / f"packages{i}" for i, path in enumerate(packages)}
    for there in binds.values():
        there.mkdir()
    (site / "sitecustomize.py").write_text(
        f"""import os, sys, time

def held(event, args):
    if event == "open" and sys.argv[1:2] == ["evaluate"] and str(args[0]).endswith("/p1.safetensors"):
        if not os.path.exists("{marks}/hold-evaluation") or not os.path.exists(sys.argv[2] + "/blocks.jsonl"):
            return  # it opens every prompt's at first, to read the headers
        os.close(os.open("{marks}/at-evaluation", os.O_CREAT | os.O_WRONLY))
        while os.path.exists("{marks}/hold-evaluation"):
            time.sleep(0.02)

sys.addaudithook(held)
"""
    )
    paths = ":".join(os.fspath(path) for path in (site, *list(binds.values())[1:]))
    command = folder / "python3"
    command.write_text(
        f"""#!/bin/sh
case "$*" in *" evaluate "*)
  touch {marks}/at-launch; echo "$*" >>{marks}/launches
  while [ -e {marks}/hold-launch ]; do sleep 0.05; done ;;
esac
export PYTHONPATH={paths} LD_LIBRARY_PATH={base}/lib
exec {base}/bin/python{sys.version_info[0]}.{sys.version_info[1]} "$@"
"""
    )
    command.chmod(0o755)
    return command, binds
