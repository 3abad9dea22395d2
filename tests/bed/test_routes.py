"""Ways between machines that are machines: who reaches whom, cables that are pulled, writers that nobody has told."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from dflash_tui.checkpoints.segments import Output, Range
from dflash_tui.hosts.address import SshAddress
from dflash_tui.hosts.base import HostUnreachable
from dflash_tui.hosts.openssh import login_target
from dflash_tui.hosts.ssh import SshHost
from dflash_tui.transfer.choice import make_chooser
from dflash_tui.transfer.direct import DirectEngine, DirectRoute, reachable
from dflash_tui.transfer.engine import Leg
from dflash_tui.transfer.joined import JoinedEngine, unusable
from tests.bed.machine import Machine, User
from tests.bed.network import Network, Wire, network
from tests.sshd import descendants, processes_with
from tests.transfer.lab import MIB, fill
from tests.workstation import until

SIZE = 600 * MIB


@dataclass
class Ways:
    """Two machines and a gate; `between` joins the machines, the other wires lead to the workstation. The destination
    is behind the gate for the workstation, and its other side is known to the source alone."""

    network: Network
    root: Path
    train: Machine
    gate: Machine
    eval: Machine
    to_train: Wire
    to_gate: Wire
    to_eval: Wire
    between: Wire

    def host(self, machine: Machine, address: str, jump: Machine | None = None) -> SshHost:
        """A machine as the workstation logs in to it."""
        return SshHost(machine.name, self._address(machine, address, jump))

    def _address(self, machine: Machine, address: str, jump: Machine | None = None) -> SshAddress:
        way = self._address(jump, self.to_gate.address) if jump else None
        return SshAddress(
            address, username=machine.user.name, config=None, client_keys=[str(machine.folder / "client_key")],
            known_hosts=str(self.root / "known"), agent=False, jump=way,
        )  # fmt: skip

    @property
    def source(self) -> SshHost:
        return self.host(self.train, self.to_train.address)

    @property
    def destination(self) -> SshHost:
        return self.host(self.eval, self.to_eval.address, self.gate)

    @property
    def part(self) -> Path:
        return self.eval.user.home / "in" / ".f.part"

    def leg(self, source: SshHost, destination: SshHost, start: int = 0) -> Leg:
        async def pace(nbytes: int) -> None:
            return

        return Leg(
            source, str(self.train.user.home), Output("f", (Range("f", 0, SIZE),)), destination, str(self.part), start,
            SIZE, SIZE, lambda read, written: None, lambda number, digest: None, pace,
        )  # fmt: skip


@pytest.fixture
def ways() -> Iterator[Ways]:
    """Real users with homes of their own: the source's has a key for the destination, and knows its address."""
    with ExitStack() as stack:
        net = stack.enter_context(network())
        # pytest's own folders are for nobody else.
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=net.name, dir="/tmp")))
        root.chmod(0o755)
        for name in ("train", "gate", "eval"):
            net.add(name)
        to_train, to_gate = net.join("workstation", "train", 1), net.join("workstation", "gate", 2)
        to_eval, between = net.join("gate", "eval", 3), net.join("train", "eval", 4)
        machines = []
        uid = 200_000 + 3 * os.getpid()
        for number, (name, wire) in enumerate((("train", to_train), ("gate", to_gate), ("eval", to_eval))):
            folder = root / name
            home = folder / "home"
            home.mkdir(parents=True)
            shell = "/usr/sbin/nologin" if name == "gate" else "/bin/sh"
            user = User(f"u{name}", uid + number, home, shell)
            extra = ["Subsystem sftp internal-sftp", "AllowTcpForwarding yes"]
            if name == "eval":
                extra.append(f"ListenAddress {between.address}")
            machine = Machine(net, name, wire.address, folder, user, extra=extra)
            os.chown(home, user.uid, user.uid)
            machines.append(machine)
            stack.callback(machine.stop)
            machine.start()
        train, gate, evaluation = machines
        (root / "known").write_text("".join(f"{machine.known}\n" for machine in machines))
        ssh = train.user.home / ".ssh"
        ssh.mkdir(mode=0o700)
        (ssh / "id_ed25519").write_bytes((evaluation.folder / "client_key").read_bytes())
        (ssh / "id_ed25519").chmod(0o600)
        (ssh / "known_hosts").write_text(f"{between.address} {evaluation.host_key}\n")
        for path in (ssh, *ssh.iterdir()):
            os.chown(path, train.user.uid, train.user.uid)
        (evaluation.user.home / "in").mkdir()
        os.chown(evaluation.user.home / "in", evaluation.user.uid, evaluation.user.uid)
        made = Ways(net, root, train, gate, evaluation, to_train, to_gate, to_eval, between)
        with net.entered("workstation"):
            yield made


def _ssh_of(folder: Path) -> list[int]:
    """This machine's `ssh` programs that use a file of the test's."""
    found = []
    for pid in processes_with(str(folder)):
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "ssh":
                found.append(pid)
    return found


def _below(machine: Machine, name: str) -> list[int]:
    found = []
    for pid in descendants(machine.pid):
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                found.append(pid)
    return found


async def _some_bytes(ways: Ways) -> None:
    await asyncio.to_thread(
        until, lambda: ways.part.exists() and ways.part.stat().st_size > 30 * MIB, "some bytes", seconds=60
    )


async def test_joined_goes_through_a_gate_and_survives_a_pulled_cable(ways: Ways) -> None:
    data = await asyncio.to_thread(fill, ways.train.user.home / "f", SIZE)
    source, destination = ways.source, ways.destination
    assert await unusable(source, destination) == ""
    engine = JoinedEngine()
    work = asyncio.create_task(engine.carry(ways.leg(source, destination)))
    await _some_bytes(ways)
    ways.to_gate.cut()
    began = time.monotonic()
    with pytest.raises(HostUnreachable):
        await work
    assert time.monotonic() - began < 60
    assert _ssh_of(ways.root) == []
    assert _below(ways.train, "dd") == []
    left = _below(ways.eval, "dd")
    assert left, "its sshd has not been told, so the writer lives"
    ways.to_gate.mend()
    at = ways.part.stat().st_size // MIB * MIB
    assert 0 < at < SIZE
    async with asyncio.timeout(60):  # until the two find each other again
        while await unusable(source, destination):
            await asyncio.sleep(0.1)
    await engine.carry(ways.leg(source, destination, at))
    assert not set(left) & set(_below(ways.eval, "dd"))
    assert ways.part.read_bytes() == data
    await source.close()
    await destination.close()


async def test_direct_goes_where_the_workstation_does_not(ways: Ways) -> None:
    data = await asyncio.to_thread(fill, ways.train.user.home / "f", SIZE)
    source, destination = ways.source, ways.destination
    known = ways.train.user.home / ".ssh" / "known_hosts"
    before = known.read_bytes()
    # What the workstation knows the destination by is nothing to the source.
    unreached = await reachable(source, destination, str(ways.part.parent))
    assert isinstance(unreached, str)
    assert f"train does not reach {await login_target(destination.address)}: " in unreached
    target = f"{ways.eval.user.name}@{ways.between.address}"
    way = await reachable(source, destination, str(ways.part.parent), target)
    assert isinstance(way, DirectRoute), way
    engine = DirectEngine(way)
    work = asyncio.create_task(engine.carry(ways.leg(source, destination)))
    await _some_bytes(ways)
    ways.between.cut()
    with pytest.raises(HostUnreachable):
        await work
    for machine, name in ((ways.train, "ssh"), (ways.train, "dd"), (ways.eval, "dd")):
        assert _below(machine, name) == [], name  # both can still be reached, so nothing is left
    ways.between.mend()
    # A neighbour that did not answer is taken for gone until it is asked for again, some seconds later.
    async with asyncio.timeout(60):
        while isinstance(await reachable(source, destination, str(ways.part.parent), target), str):
            pass
    at = ways.part.stat().st_size // MIB * MIB
    assert 0 < at < SIZE
    async with asyncio.timeout(60):  # until the two find each other again
        while await unusable(source, destination):
            await asyncio.sleep(0.1)
    await engine.carry(ways.leg(source, destination, at))
    assert ways.part.read_bytes() == data
    assert known.read_bytes() == before
    await source.close()
    await destination.close()


async def test_machines_that_don_t_reach_each_other_are_relayed_between(ways: Ways) -> None:
    ways.between.cut()
    source, destination = ways.source, ways.destination
    target = f"{ways.eval.user.name}@{ways.between.address}"

    async def find() -> DirectRoute | str:
        return await reachable(source, destination, str(ways.part.parent), target)

    chooser = make_chooser(source, destination, "auto", find)
    began = time.monotonic()
    engine, _ = await chooser.choose(MIB)
    assert time.monotonic() - began < 15
    assert engine.route == "relay"
    assert f"train does not reach {target}: " in chooser.notes[0]
    assert os.listdir(ways.part.parent) == []
    await source.close()
    await destination.close()
