"""A stand-in for Proxmox's `pct`: container 200 runs in a busybox chroot, 201 is stopped, others don't exist.

Words, statuses and traps are those of pve-container: `exec` hands its streams to the program and knows no shell; `pull`
truncates its destination first, never looks at what its copy did, and ends with 0 even when it failed.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from pathlib import Path

from tests.sshd import need

LOCK_SECONDS = 10.0
"""How long the real one waits for a container's config lock."""

_SCRIPT = '''#!@PYTHON@ -IS
import errno, fcntl, os, signal, sys, time

ROOT, LOCK_SECONDS = "@ROOT@", @LOCK_SECONDS@
DIED = 255  # a Perl `die` without an errno
USAGE = "USAGE: pct <config|exec|list|pull|status> [ARGS] [OPTIONS]"
NAMES = {"200": "train", "201": "idle"}


def die(sentence, status=DIED):
    sys.stderr.write(sentence + "\\n")
    sys.exit(status)


def states():
    """The containers of this node: none once their host's folder says so."""
    with open(ROOT + ".state") as file:
        word = file.read().strip()
    return {"200": word, "201": "stopped"} if word != "none" else {}


def listed(words):
    found = states()
    rows = [("VMID", "Status", "Lock", "Name")] if found else []
    rows += [(vmid, state, "", NAMES[vmid]) for vmid, state in sorted(found.items())]
    for row in rows:
        print("%-10s %-10s %-12s %-20s" % row)


def status(vmid, state, words):
    if words in (["--verbose"], ["-verbose"]):
        print("name: %s\\nstatus: %s\\ntype: lxc\\nvmid: %s" % (NAMES[vmid], state, vmid))
    else:
        print("status: " + state)


def config(vmid, state, words):
    print("arch: amd64\\ncores: 8\\nhostname: %s\\nmemory: 65536\\nostype: debian" % NAMES[vmid])
    print("rootfs: local-zfs:subvol-%s-disk-0,size=512G\\nunprivileged: 1" % vmid)


def run(words, environment):
    """execvp, which must not load a module any more: this process sees the container's files already."""
    paths = [words[0]] if "/" in words[0] else [f"{folder}/{words[0]}" for folder in environment["PATH"].split(":")]
    for path in paths:
        try:
            os.execve(path, words, environment)
        except FileNotFoundError as error:
            lost = error
    raise lost


def execute(vmid, state, words):
    """Becomes lxc-attach, which starts the program with the streams of the caller and passes its status on."""
    keep = True
    while words and words[0] in ("--keep-env", "-keep-env"):
        keep = words[1:2] != ["0"]
        del words[:2]
    if words[:1] == ["--"]:
        del words[0]
    if not words:
        die("400 not enough arguments\\n" + USAGE)
    if state != "running":
        die("container '%s' not running!" % vmid)
    environment = dict(os.environ) if keep else {}
    environment.update(container="lxc", PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    child = os.fork()
    if child == 0:
        try:
            os.chroot(ROOT)
            os.chdir("/")
        except OSError as error:
            os.write(2, os.fsencode("lxc-attach: %s: attach.c: %s - Failed to attach\\n" % (vmid, error.strerror)))
            os._exit(1)
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores some, and that is inherited
            signal.signal(number, signal.SIG_DFL)
        try:
            run(words, environment)
        except OSError as error:
            told = "lxc-attach: %s: attach.c: lxc_attach_run_command: %s - Failed to exec \\"%s\\"\\n"
            os.write(2, os.fsencode(told % (vmid, error.strerror, words[0])))
            os._exit(127 if error.errno == errno.ENOENT else 126)
    for number in (0, 1):  # the end of a stream is the program's to tell
        os.close(number)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ended = os.waitpid(child, 0)[1]
    os._exit(128 + os.WTERMSIG(ended) if os.WIFSIGNALED(ended) else os.WEXITSTATUS(ended))


def locked(vmid):
    """The container's config lock, held until this process ends."""
    path = ROOT + ".lock-" + vmid
    file = open(path, "a")
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() > deadline:
                die("trying to acquire lock...\\ncan't lock file '%s' - got timeout" % path)
            time.sleep(0.02)


def pull(vmid, state, words):
    """The copy is a worker task: what goes wrong in it is told on stderr, and nowhere else."""
    if len(words) != 2:
        die("400 not enough arguments\\n" + USAGE)
    source, destination = words
    lock = locked(vmid)
    if state != "running":
        die("can only pull files from a running VM")
    try:
        with open(destination, "wb", buffering=0) as out, open(ROOT + os.path.normpath("/" + source), "rb") as file:
            while data := file.read(1 << 16):
                if out.write(data) != len(data):
                    break  # File::Copy gives up, and nobody looks at its result
    except OSError as error:
        if error.filename:
            sys.stderr.write("failed to open %s: %s\\n" % (error.filename, error.strerror))
    lock.close()


def main(words):
    if os.geteuid() != 0:
        die("please run as root")
    if not words:
        die("ERROR: no command specified\\n" + USAGE)
    name, words = words[0], words[1:]
    if name == "list":
        return listed(words)
    commands = {"status": status, "config": config, "exec": execute, "pull": pull}
    if name not in commands:
        die("ERROR: unknown command 'pct %s'\\n%s" % (name, USAGE))
    if not words or not words[0].isdecimal():
        got = "type check ('integer') failed - got '%s'" % words[0] if words else "property is missing"
        die("400 Parameter verification failed.\\nvmid: %s\\n%s" % (got, USAGE))
    vmid = words.pop(0)
    state = states().get(vmid)
    if state is None:
        die("Configuration file 'nodes/pve/lxc/%s.conf' does not exist" % vmid, errno.ENOENT)
    commands[name](vmid, state, words)


main(sys.argv[1:])
'''

_APPLETS = (
    "cat cp date dd df echo env find kill ln mkdir mv printf readlink rm sh sha256sum sleep stat sync tail test touch "
    "true"
)


class Pct:
    """`path` is the executable; `root` the running container's root folder, as this machine sees it."""

    def __init__(self, folder: Path, *, lock_seconds: float = LOCK_SECONDS) -> None:
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
        replaced = {"@PYTHON@": sys.executable, "@ROOT@": str(self.root), "@LOCK_SECONDS@": str(lock_seconds)}
        script = _SCRIPT
        for mark, text in replaced.items():
            script = script.replace(mark, text)
        self.path.write_text(script)
        self.path.chmod(self.path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        self.set_state("running")

    def set_state(self, state: str) -> None:
        """Stop or start container 200; "none" takes every container from the node."""
        self.root.with_name(self.root.name + ".state").write_text(state)

    @property
    def lock(self) -> Path:
        """The config lock of container 200: whoever holds a flock on it makes others wait."""
        return self.root.with_name(self.root.name + ".lock-200")

    def prefix(self, container: int = 200) -> tuple[str, ...]:
        """What goes before a command."""
        return (str(self.path), "exec", str(container), "--")
