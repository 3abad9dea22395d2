"""Which way a transfer takes, and what is remembered of the ways."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_tui.console import events as happened
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


async def test_a_speed_under_a_limit_is_not_kept(tiny: Bench) -> None:
    limited = replace(tiny.console.config.transfer, limit="20 MB/s")
    console = Console(replace(tiny.console.config, transfer=limited), tiny.console.store, tiny.console.hosts)
    one, other = console.training_host, console.evaluation_host
    async with console.pace.admitted(), chosen(console, one, other, str(tiny.root), None) as chooser:
        chooser.measured(RelayEngine(), BYTES, 12.0)
        assert chooser.rates == {}
    assert not (console.store.state / "rates.json").exists()
    await console.close()


async def test_two_consoles_of_one_state_folder_share_the_limit(tiny: Bench) -> None:
    limited = replace(tiny.console.config.transfer, limit="8 MB/s")
    config = replace(tiny.console.config, transfer=limited)
    one, other = (Console(config, tiny.console.store, tiny.console.hosts) for _ in range(2))
    async with one.pace.admitted(), other.pace.admitted():
        assert other.pace.share == 4_000_000
    for console in (one, other):
        await console.close()


@pytest.mark.parametrize("text", ["", "[]", '{"version": 2, "ways": [{"source": 1}]}', '{"version": 9, "ways": []}'])
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
    told: list[happened.Event] = []
    console.listen(lambda state: None)
    console._told = told.append
    with pytest.raises(TransferError, match="--route relay goes through here") as failure:
        await fetch(console)
    assert console.state.transfer.state == "failed"
    assert [event.route for event in told if isinstance(event, happened.TransferStarted)] == [("ct200", "lab")]
    # It is said once, by what the transfer ends with, and nothing is drawn that moves.
    assert [event.error for event in told if isinstance(event, happened.TransferEnded)] == [str(failure.value)]
    assert not [event for event in told if isinstance(event, happened.Noticed | happened.TransferAdvanced)]
    assert (await fetch(console, route="relay")).brought.route == "relay"
    await console.close()
