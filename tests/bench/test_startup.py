"""The app is on the screen before anything heavy is imported, at a small multiple of the least that Textual costs."""

from __future__ import annotations

import pytest

from tests.bench.startup import LIMIT, ROUNDS, measure, table


def test_all_four_panels_are_there_within_the_limit_and_before_heavy_imports(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = measure(ROUNDS)
    with capsys.disabled():
        print(f"\n{table(rows)}")
    for row in rows[1:]:
        assert row.early == (), row
        assert row.ratio <= LIMIT, row
