"""The bed for one test: every test begins with the same two hosts and an empty workstation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bed.bed import Bed
from tests.bed.bed import bed as standing


@pytest.fixture
def bed() -> Iterator[Bed]:
    with standing() as made:
        yield made
