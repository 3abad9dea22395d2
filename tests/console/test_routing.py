"""Which way a transfer takes, and what is remembered of the ways."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_tui.console.acts.fetch import fetch
from dflash_tui.console.acts.routing import chosen
from dflash_tui.console.console import Console
from dflash_tui.transfer.errors import TransferError
from dflash_tui.transfer.joined import JoinedEngine
from dflash_tui.transfer.relaying import RelayEngine
from tests.console.world import Bench, bench

BYTES = 256 << 20


@pytest.fixture
async def tiny(tmp_path: Path) -> AsyncIterator[Bench]:
    made = bench(tmp_path)
    made.save(4000)
    yield made
    await made.console.close()


async def test_what_was_measured_between_two_hosts_is_known_to_the_next_transfer(tiny: Bench) -> None:
    console = tiny.console
    one, other = console.training_host, console.evaluation_host
    async with chosen(console, one, other, str(tiny.root), None) as chooser:
        assert chooser.rates == {}
        chooser.measured(RelayEngine(), BYTES, 1.0)
        chooser.measured(JoinedEngine(), BYTES, 0.5)
    later = Console(console.config, console.store, console.hosts)
    async with chosen(later, one, other, str(tiny.root), None) as chooser:
        assert chooser.rates == {"relay": BYTES, "joined": 2 * BYTES}
    async with chosen(later, other, one, str(tiny.root), None) as chooser:
        assert chooser.rates == {}
    await later.close()


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1, "ways": [{"source": 1}]}', '{"version": 9, "ways": []}'])
async def test_a_memory_that_can_not_be_read_only_costs_a_trial(tiny: Bench, text: str) -> None:
    console = tiny.console
    console.store.state.mkdir(parents=True, exist_ok=True)
    (console.store.state / "rates.json").write_text(text)
    async with chosen(console, console.training_host, console.evaluation_host, str(tiny.root), None) as chooser:
        assert chooser.rates == {}
    assert (await fetch(console)).step == 4000


async def test_the_route_of_the_config_counts_unless_another_is_asked_for(tiny: Bench) -> None:
    direct = replace(tiny.console.config.transfer, route="direct")
    console = Console(replace(tiny.console.config, transfer=direct), tiny.console.store, tiny.console.hosts)
    with pytest.raises(TransferError, match="--route relay goes through here"):
        await fetch(console)
    assert console.state.transfer.state == "failed"
    assert (await fetch(console, route="relay")).brought.route == "relay"
    await console.close()
