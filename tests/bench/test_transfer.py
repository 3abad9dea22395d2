"""The bench of transfers, looked at shortly: a line that is long, costs that are whole, every way brings the right
file; `python -m tests.bench.transfer` measures in earnest."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.bench.transfer.__main__ import PARTS, measure
from tests.bench.transfer.cost import Cost, Step, StepFailed, run
from tests.bench.transfer.delayed import ONE_WAY
from tests.bench.transfer.line import line
from tests.bench.transfer.product import reference
from tests.bench.transfer.references import cat_here
from tests.bench.transfer.saved import shapes, weights
from tests.bench.transfer.table import Section, faster, interleaved, ratio, takes, text
from tests.bench.transfer.world import World, alike, world, write_noise

SMALL = 48 << 20


@contextmanager
def echo() -> Iterator[int]:
    """A server's port; it gives back what it gets, and ends when it has all."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            taken, _ = listener.accept()
            with taken:
                while data := taken.recv(1 << 16):
                    taken.sendall(data)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)
        assert not thread.is_alive(), "the end of what was sent did not arrive"


def test_a_byte_goes_there_and_back_in_a_round_trip() -> None:
    with echo() as port, line(port, delay=ONE_WAY) as far:
        with socket.create_connection(("127.0.0.1", far.port)) as client:
            trips = []
            for _ in range(10):
                began = time.monotonic()
                client.sendall(b"?")
                assert client.recv(1) == b"?"
                trips.append(time.monotonic() - began)
        assert all(trip >= 2 * ONE_WAY for trip in trips)
        assert min(trips) < 2 * ONE_WAY + 0.010


def test_a_long_line_is_a_fast_one_and_brings_every_byte_in_order() -> None:
    sent = os.urandom(1 << 20) * 48
    got = hashlib.sha256()
    with echo() as port, line(port, delay=ONE_WAY) as far:
        with socket.create_connection(("127.0.0.1", far.port)) as client:

            def send() -> None:
                client.sendall(sent)
                client.shutdown(socket.SHUT_WR)

            sender = threading.Thread(target=send, daemon=True)
            began = time.monotonic()
            sender.start()
            while data := client.recv(1 << 20):
                got.update(data)
            seconds = time.monotonic() - began
            sender.join()
        assert got.digest() == hashlib.sha256(sent).digest()
        assert far.out == far.back == len(sent)
    # Piece by piece, each waiting for the one before, it would be 8 s.
    assert seconds < len(sent) / (1 << 18) * 2 * ONE_WAY / 2


def test_a_sender_waits_when_the_line_is_full() -> None:
    bound = 1 << 20
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        line(listener.getsockname()[1], in_flight=bound) as near,
        socket.create_connection(("127.0.0.1", near.port)) as client,
        listener.accept()[0],
    ):
        client.settimeout(0.5)
        taken = 0
        with suppress(TimeoutError):
            while taken < 256 << 20:
                taken += client.send(bytes(1 << 16))
        assert bound < taken < 64 << 20  # the bound, and what the sockets' buffers hold


def test_who_hangs_up_at_one_end_is_gone_at_the_other() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        line(listener.getsockname()[1]) as near,
        socket.create_connection(("127.0.0.1", near.port), timeout=10) as client,
    ):
        listener.accept()[0].close()
        assert client.recv(1) == b""


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("world")) as made:
        yield made


def test_a_cost_is_of_all_three_places(there: World) -> None:
    path = there.saved / "a"
    write_noise(path, SMALL)
    cost, _ = run(cat_here(there.config, path, there.here / "a"), there)
    assert alike(path, there.here / "a")
    assert 0 < cost.here < 10
    assert 0 < cost.source < 10
    assert cost.destination < 0.05
    assert cost.here + cost.source < 2.5 * cost.wall


def test_memory_is_the_program_s_own(there: World) -> None:
    program = "import time; held = bytearray(200 << 20); time.sleep(1.2)"
    cost, _ = run([Step(((sys.executable, "-c", program),))], there)
    assert 200 << 20 < cost.peak < 260 << 20


def test_a_program_that_fails_is_not_measured(there: World) -> None:
    with pytest.raises(StepFailed, match="No such file"):
        run(cat_here(there.config, there.saved / "absent", there.here / "absent"), there)


def test_a_way_that_brings_another_file_is_not_measured(there: World) -> None:
    write_noise(there.saved / "a", 1 << 20)
    with pytest.raises(AssertionError, match="not what the source has"):
        reference(there, "a", cat_here(there.config, there.saved / "a", there.here / "a"))()


def test_ratios_are_of_ways_in_the_same_round_and_a_limit_not_met_is_said() -> None:
    slow, fast = ([Cost(wall, 1, 1, 1, 5_000_000) for wall in walls] for walls in ((2, 40, 6), (1, 10, 6)))
    rounds = {"slow": slow, "fast": fast}
    assert ratio(rounds, "slow", "fast") == 2
    good, bad = faster(rounds, "fast", "slow", 2.0), takes(rounds, "fast", "slow", 0.4)
    assert (good.met, bad.met) == (True, False)
    told = text(Section("Ways", rounds, (good, bad))).splitlines()
    assert "2.00 ×  at least 2.00 ×" in told[-2]
    assert "NOT MET" not in told[-2]
    assert "0.50 ×  at most 0.40 ×" in told[-1]
    assert told[-1].endswith("NOT MET")


def test_each_round_begins_with_another_way() -> None:
    gone: list[str] = []

    def way(name: str) -> Cost:
        gone.append(name)
        return Cost(1, 1, 1, 1, 1)

    interleaved({name: lambda name=name: way(name) for name in "abc"}, 3)  # type: ignore[misc]
    assert "".join(gone) == "abcbcacab"


def test_the_checkpoint_is_a_realistic_one() -> None:
    total = 2 << 30
    names = shapes(total)
    assert len(names) == 11 * 6 + 5
    assert 0.19 < weights(total, ends=True) / total < 0.21
    assert 0.07 < weights(total, ends=False) / total < 0.10


@pytest.mark.parametrize("part", PARTS)
def test_every_part_is_measured_and_leaves_nothing_behind(part: str, tmp_path: Path) -> None:
    for section in measure(part, SMALL, 1, tmp_path):
        assert section.demands
        for name, costs in section.rounds.items():
            assert all(cost.wall > 0 and cost.here > 0 for cost in costs), name
    assert not list(tmp_path.iterdir())


def test_what_is_interrupted_leaves_nothing_behind(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.bench.transfer", "--size", "0.1", "--only", "resume", "--folder", tmp_path],
        cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as bench:  # fmt: skip
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("*/destination/data/.*.part")) and time.monotonic() < deadline:
            time.sleep(0.01)
        bench.terminate()
        bench.communicate(timeout=30)
    assert bench.returncode != 0
    assert not list(tmp_path.iterdir())
