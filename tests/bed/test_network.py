"""The bed is what it claims: who reaches whom, as whom, and that nothing of it stays."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bed.bed import Bed, bed
from tests.bed.network import remove_strays
from tests.harness.world import REPOSITORY
from tests.sshd import processes_with
from tests.workstation import until


@pytest.fixture(scope="module")
def standing() -> Iterator[Bed]:
    with bed() as made:
        yield made


def ssh_command(made: Bed, alias: str, *argv: str | Path) -> list[str]:
    """A command over the system's own ssh client, which looks for `~` in /etc/passwd and not in HOME."""
    config = made.root / "ssh_config"
    text = (made.home / ".ssh" / "config").read_text().replace("~", os.fspath(made.home))
    config.write_text(f"UserKnownHostsFile {made.home}/.ssh/known_hosts\nBatchMode yes\n{text}")
    return [*made.entering, "ssh", "-F", os.fspath(config), alias, *(os.fspath(word) for word in argv)]


def ssh(made: Bed, alias: str, *argv: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command over ssh."""
    command = ssh_command(made, alias, *argv)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=made.environment(), check=False)


def test_neither_side_reaches_the_other_and_the_workstation_reaches_both(standing: Bed) -> None:
    gate, pve1, ct129 = (machine.listens for machine in (standing.gate, standing.pve1, standing.ct129))
    reached = {
        (name, address): standing.network.reaches(name, address)
        for name in ("workstation", "gate", "pve1", "ct129")
        for address in (gate, pve1, ct129)
    }
    assert {pair for pair, found in reached.items() if found} == {
        ("workstation", gate),
        ("workstation", ct129),
        ("gate", gate),
        ("gate", pve1),
        ("pve1", pve1),
        ("ct129", ct129),
    }


def test_the_hypervisor_is_reached_by_jumping_only(standing: Bed) -> None:
    assert ssh(standing, "pve1", "hostname; id -un").stdout == "pve1\nroot\n"
    assert ssh(standing, "pve1", "pct", "status", "200").stdout == "status: running\n"
    assert ssh(standing, "gate", "true").returncode != 0


def test_evaluations_are_another_user_s(standing: Bed) -> None:
    uid = standing.ct129.user.uid
    assert uid != os.getuid()
    assert ssh(standing, "ct129", "id -un; id -u; hostname").stdout == f"eva\n{uid}\nct129\n"
    assert ssh(standing, "ct129", "touch", standing.evaluations / "mine").returncode == 0
    assert (standing.evaluations / "mine").stat().st_uid == uid
    for foreign in (standing.home, standing.lab.target.folder, standing.container):
        assert "Permission denied" in ssh(standing, "ct129", "touch", foreign / "theirs").stderr
    assert ssh(standing, "ct129", standing.python, "-c", "'import torch; print(torch.ones(2).sum())'").stdout == (
        "tensor(2.)\n"
    )


@pytest.mark.parametrize(("link", "alias"), [("evaluation_link", "ct129"), ("training_link", "pve1")])
def test_a_pulled_cable_is_silent_and_a_mended_one_works_again(standing: Bed, link: str, alias: str) -> None:
    wire = getattr(standing, link)
    with subprocess.Popen(
        ssh_command(standing, alias, "cat"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=standing.environment()
    ) as session:
        assert session.stdin is not None
        assert session.stdout is not None
        for words in (b"before", b"meanwhile"):
            if words == b"meanwhile":
                wire.cut()
            os.write(session.stdin.fileno(), words)
            answered = select.select([session.stdout], [], [], 10 if words == b"before" else 1.5)[0]
            assert bool(answered) == (words == b"before")
            assert not answered or os.read(session.stdout.fileno(), 100) == words
        assert session.poll() is None  # not even a reset came
        assert not standing.network.reaches("workstation", wire.address)
        wire.mend()
        assert select.select([session.stdout], [], [], 30)[0]
        assert os.read(session.stdout.fileno(), 100) == b"meanwhile"
        session.kill()


LEFT = """
import sys, time
from tests.bed.bed import bed
with bed() as made:
    print(made.network.name, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def other() -> Iterator[subprocess.Popen[str]]:
    """Another run that has a bed; its first line is the name."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen([sys.executable, "-c", LEFT], stdout=subprocess.PIPE, text=True, env=environment) as run:
        try:
            yield run
        finally:
            run.kill()


def test_what_a_killed_run_left_is_removed_by_the_next_and_nothing_else(
    standing: Bed, other: subprocess.Popen[str]
) -> None:
    assert other.stdout is not None
    name = other.stdout.readline().strip()
    left = [path for folder in ("/run/netns", "/tmp") for path in Path(folder).glob(f"{name}*")]
    assert len(left) == 5  # four machines, one folder
    servers = processes_with(f"/tmp/{name}")
    assert len(servers) >= 3
    remove_strays()
    assert all(path.exists() for path in left), "its owner still runs"
    other.kill()
    other.wait()
    remove_strays()
    assert not any(path.exists() for path in left)
    until(lambda: not set(servers) & set(processes_with(f"/tmp/{name}")), "the end of its servers")
    assert ssh(standing, "ct129", "true").returncode == 0
