"""The hash that grows with a stream and goes back to where proven bytes end."""

from __future__ import annotations

import hashlib

from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_tui.transfer.stream import Running

MARK = 64 << 20
DATA = hashlib.sha256(b"seed").digest() * ((3 * MARK) // 32)


@settings(max_examples=12, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40 << 20), min_size=1, max_size=6),
    kept=st.integers(0, 3 * MARK),
)
def test_goes_back_to_the_last_mark_and_ends_with_the_same_hash(sizes: list[int], kept: int) -> None:
    running = Running()
    for size in sizes:
        running.update(DATA[running.at : running.at + size])
    passed = running.at
    assert passed == min(sum(sizes), len(DATA))
    assert running.hex == hashlib.sha256(DATA[:passed]).hexdigest()
    at = running.back_to(kept)
    assert at == min(kept, passed) // MARK * MARK
    assert running.hex == hashlib.sha256(DATA[:at]).hexdigest()
    running.update(DATA[at:passed])
    assert running.hex == hashlib.sha256(DATA[:passed]).hexdigest()


def test_a_hash_that_missed_bytes_says_nothing() -> None:
    running = Running()
    running.continue_unseen(MARK)
    running.update(b"rest")
    assert running.at == MARK + 4
    assert running.hex == ""
    running.update(DATA)
    assert running.back_to(4 * MARK) == 0, "a mark's hash would be of the later bytes alone"
    assert running.hex == hashlib.sha256(b"").hexdigest()
