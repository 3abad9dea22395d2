"""The command line of every stand-in: `standin.py TOOL STATE_DIR ARGUMENTS…`, run by a small script of that name.

As with the real ones, the command line is a client: a process of its own session (the daemon, or slurmstepd) starts the
program inside and passes bytes on. What happens when the client is killed differs: see `_serve`. Stdlib only, and
started a hundred times by a test run, so imports are few.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ID = "4f5e" * 16
DOCKERS = ("docker", "podman", "nerdctl")
STEP = "SLURM_STEP_MARK"


class Refusal(Exception):
    """The launcher starts nothing: its words on stderr, its exit status."""

    def __init__(self, words: str, status: int) -> None:
        super().__init__(words)
        self.words, self.status = words, status


class Asked:
    """A command line as it was understood."""

    def __init__(self, target: str, command: list[str], options: set[str]) -> None:
        self.target, self.command, self.options = target, command, options


def main(tool: str, state_dir: str, arguments: list[str]) -> int:
    with open(f"{state_dir}/calls", "a", encoding="utf-8", errors="surrogateescape") as calls:
        calls.write(f"{tool} {' '.join(arguments)!r}\n")
    try:
        asked = understood(tool, arguments)
        init = running(tool, asked.target, state_dir)
        check_program(tool, asked.command, init)
    except Refusal as refusal:
        sys.stderr.write(refusal.words + "\n")
        return refusal.status
    if tool == "srun" and "--overlap" not in asked.options:
        # A step waits until the job's resources are free of other steps.
        lock = os.open(f"{state_dir}/{asked.target}/steps", os.O_CREAT | os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)
    if tool == "kubectl" and "-c" not in asked.options:
        sys.stderr.write('Defaulted container "train" out of: train, sidecar\n')
        sys.stderr.flush()
    tasks = 2 if tool == "srun" and "--ntasks=1" not in asked.options else 1
    for _ in range(tasks):
        status = run(tool, asked, init)
    if tool == "kubectl" and status:
        sys.stderr.write(f"command terminated with exit code {status}\n")
    if tool == "srun" and status:
        how = f"Exited with exit code {status}" if status < 128 else signal.strsignal(status - 128) or "Killed"
        sys.stderr.write(f"srun: error: node01: task 0: {how}\n")
    return status


def understood(tool: str, words: list[str]) -> Asked:
    """The container, the command and the options, each tool by its own grammar."""
    if tool == "srun":
        return srun_line(words)
    rest, valued = list(words), {"kubectl": ("-n", "-c", "--context", "--namespace", "--container")}
    takes = valued.get(tool, ("-e", "-u", "-w", "--context", "--project", "--user", "--env", "--cwd"))
    while rest and rest[0] != "exec":
        rest = rest[2:] if rest[0] in takes else rest[1:]
    if not rest:
        raise Refusal(f"unknown command for {tool}: {' '.join(words)}", 1)
    options: set[str] = set()
    operands: list[str] = []
    rest.pop(0)
    while rest:
        word = rest.pop(0)
        if word == "--":
            break
        # docker's and incus' own options end at the container's name; kubectl's go on until `--`.
        if word.startswith("-") and (tool == "kubectl" or not operands):
            options.add(word)
            if word in takes:
                rest.pop(0)
        else:
            operands.append(word)
            if tool != "kubectl" and len(operands) == 1:
                break
    if tool in ("incus", "lxc") and rest[:1] == ["--"]:
        rest.pop(0)
    if "-t" in options or "-it" in options:
        raise Refusal("the input device is not a TTY", 1)
    command = operands[1:] + rest
    if not operands or not command:
        raise Refusal(f'"{tool} exec" requires at least 2 arguments.', 1)
    return Asked(operands[0], command, options)


def srun_line(words: list[str]) -> Asked:
    options: set[str] = set()
    rest = list(words)
    while rest and rest[0].startswith("-"):
        options.add(rest.pop(0))
    job = next((word.partition("=")[2] for word in options if word.startswith("--jobid=")), "")
    return Asked(job, rest, options)


def running(tool: str, target: str, state_dir: str) -> int:
    """The process id of the container's init. Raises Refusal."""
    folder = f"{state_dir}/{target}"
    there = bool(target) and os.path.isdir(folder)
    try:
        with open(f"{folder}/init", encoding="ascii") as file:
            init = int(file.read())
        os.kill(init, 0)
    except (OSError, ValueError):
        init = 0
    if init:
        return init
    kind = "docker" if tool == "docker" else tool
    missing, stopped = {
        "docker": (
            (f"Error response from daemon: No such container: {target}", 1),
            (f"Error response from daemon: container {ID} is not running", 1),
        ),
        "podman": (
            (f'Error: no container with name or ID "{target}" found: no such container', 125),
            ("Error: can only create exec sessions on running containers: container state improper", 255),
        ),
        "nerdctl": (
            (f'time="2026-05-21T09:40:00Z" level=fatal msg="no such container: {target}"', 1),
            ('time="2026-05-21T09:40:00Z" level=fatal msg="cannot exec in a stopped state: unknown"', 1),
        ),
        "kubectl": (
            (f'Error from server (NotFound): pods "{target}" not found', 1),
            ('error: unable to upgrade connection: container not found ("train")', 1),
        ),
        "incus": (
            (f'Error: Failed to fetch instance "{target}" in project "default": Instance not found', 1),
            ("Error: Instance is not running", 1),
        ),
        "lxc": (("Error: Instance not found", 1), ("Error: Instance is not running", 1)),
        "srun": (
            (
                "srun: error: Unable to confirm allocation for job 7: Invalid job id specified\n"
                "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 7",
                1,
            ),
            ("srun: error: Unable to create step for job 7: Job/step already completing or completed", 1),
        ),
    }[kind]
    raise Refusal(*(stopped if there else missing))


def check_program(tool: str, command: list[str], init: int) -> None:
    """What a runtime says about a program that is not in the container."""
    if tool == "srun" or "/" in command[0]:
        return
    if any(os.path.lexists(f"/proc/{init}/root{folder}/{command[0]}") for folder in PATH.split(":")):
        return
    if tool in ("incus", "lxc"):
        raise Refusal("Error: Command not found", 127)
    words = f'exec: "{command[0]}": executable file not found in $PATH'
    raise Refusal(f"OCI runtime exec failed: exec failed: unable to start container process: {words}: unknown", 127)


def run(tool: str, asked: Asked, init: int) -> int:
    """The client: hand the command to the other side and pass bytes until it ends; its exit status."""
    pipes = {name: os.pipe() for name in ("stdin", "stdout", "stderr", "status", "alive")}
    other = os.fork()
    if other == 0:
        try:
            os.setsid()
            for name, (source, target) in pipes.items():
                os.close(target if name in ("stdin", "alive") else source)
            for own in (0, 1, 2):
                os.dup2(os.open(os.devnull, os.O_RDWR), own)
            _serve(tool, asked, init, {name: pair[name not in ("stdin", "alive")] for name, pair in pipes.items()})
        finally:
            os._exit(1)
    for name, (source, target) in pipes.items():
        os.close(source if name in ("stdin", "alive") else target)
    opened = tool in ("incus", "lxc", "srun") or bool({"-i", "--interactive", "--stdin"} & asked.options)
    if opened:
        threading.Thread(target=copy, args=(0, pipes["stdin"][1], True), daemon=True).start()
    else:
        os.close(pipes["stdin"][1])
    outs = [threading.Thread(target=copy, args=(pipes[name][0], own)) for name, own in (("stdout", 1), ("stderr", 2))]
    if tool == "srun":
        # At a termination signal it has the step killed and ends with it.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: os.write(pipes["alive"][1], b"x") and None)
    for out in outs:
        out.start()
    for out in outs:
        out.join()
    told = os.read(pipes["status"][0], 16)
    os.waitpid(other, 0)
    return int(told or b"1")


def _serve(tool: str, asked: Asked, init: int, ends: dict[str, int]) -> None:
    """The other side. docker, podman, nerdctl, kubectl and lxc leave the program alone when their client is gone, incus
    kills it; slurmstepd kills the whole step then, and when its task has ended."""
    # A client that is gone is an error to write to, never a signal to die of.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    inner = {name: os.pipe() for name in ("stdin", "stdout", "stderr")}
    mark = f"{STEP}={os.getpid()}"
    child = os.fork()
    if child == 0:
        for own, (name, side) in enumerate((("stdin", 0), ("stdout", 1), ("stderr", 1))):
            os.dup2(inner[name][side], own)
        os.closerange(3, 256)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        leading = [] if tool in ("incus", "lxc") else ["setsid"]
        environment = {"PATH": PATH, "LC_ALL": "C", "HOME": "/root"}
        if tool == "srun":
            environment[STEP] = mark.partition("=")[2]
        nsenter = ["nsenter", "-t", str(init), "-m", "-p", "-r", "-w", "--", *leading, *asked.command]
        os.execvpe("nsenter", nsenter, environment)
    for name, side in (("stdin", 0), ("stdout", 1), ("stderr", 1)):
        os.close(inner[name][side])
    threading.Thread(target=copy, args=(ends["stdin"], inner["stdin"][1], True), daemon=True).start()
    passing = copy_lines if tool == "srun" else copy
    outs = [threading.Thread(target=passing, args=(inner[name][0], ends[name], True)) for name in ("stdout", "stderr")]
    for out in outs:
        out.start()

    def over() -> None:
        if tool == "incus":
            kill(*below(child))
        if tool == "srun":
            kill_step(mark)

    threading.Thread(target=when_over, args=(ends["alive"], tool in ("incus", "srun"), over), daemon=True).start()
    _, ended = os.waitpid(child, 0)
    if tool == "srun":
        kill_step(mark)
    for out in outs:
        out.join()
    status = os.waitstatus_to_exitcode(ended)
    with contextlib.suppress(OSError):
        os.write(ends["status"], str(status if status >= 0 else 128 - status).encode())
    os._exit(0)


def when_over(alive: int, at_death: bool, over: Callable[[], None]) -> None:
    """Wait for word from the client, or its death."""
    told = os.read(alive, 1)
    if told or at_death:
        over()


def copy(source: int, target: int, close: bool = False) -> None:
    """Pass bytes on; what nobody takes any more is read and forgotten."""
    taken = True
    while data := os.read(source, 1 << 16):
        while data and taken:
            try:
                data = data[os.write(target, data) :]
            except OSError:
                taken = False
    if close:
        os.close(target)


def copy_lines(source: int, target: int, close: bool) -> None:
    """`copy` as slurmstepd does it: what has not ended a line waits, unless it is very long or the last."""
    waiting = b""
    while data := os.read(source, 1 << 16):
        waiting += data
        end = len(waiting) if len(waiting) > 1 << 16 else waiting.rfind(b"\n") + 1
        whole, waiting = waiting[:end], waiting[end:]
        with contextlib.suppress(OSError):
            while whole:
                whole = whole[os.write(target, whole) :]
    with contextlib.suppress(OSError):
        os.write(target, waiting)
    os.close(target)


def kill_step(mark: str) -> None:
    """SIGKILL to everything of a step, daemons too, until nothing is left of it."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        found = []
        for name in os.listdir("/proc"):
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark.encode() in file.read().split(b"\0"):
                        found.append(int(name))
            except (OSError, ValueError):
                continue
        if not found:
            return
        kill(*found)
        time.sleep(0.01)


def below(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def kill(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    code = main(sys.argv[1], sys.argv[2], sys.argv[3:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
