"""The registry is the only place where keys are written down: bindings, key bar, help and palette agree with it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from textual.content import Content

from dflash_tui.console import events as happened
from dflash_tui.tui.actions import ACTIONS, BY_ID, GROUPS, key_table, shown_key
from dflash_tui.tui.app import MOVES, DflashApp
from dflash_tui.tui.screens.help import help_lines
from dflash_tui.tui.screens.overview import VIEWS
from dflash_tui.tui.widgets.keybar import draw_keys
from tests.tui import story
from tests.tui.recording import RecordingConsole

FORBIDDEN = {
    "ctrl+b",
    "ctrl+a",
    "ctrl+s",
    "ctrl+z",
    "ctrl+h",
    "ctrl+i",
    "ctrl+j",
    "ctrl+m",
    "ctrl+k",
    "ctrl+l",
    "ctrl+w",
    "ctrl+e",
}


def test_no_two_actions_share_an_id_or_a_key() -> None:
    keys = [key for action in ACTIONS for key in action.keys]
    assert len(BY_ID) == len(ACTIONS)
    assert len(set(keys)) == len(keys)


def test_no_key_belongs_to_a_multiplexer_or_a_terminal() -> None:
    keys = {key for action in ACTIONS for key in action.keys}
    assert not keys & FORBIDDEN
    assert not any(key.startswith(("alt+", "f1", "f5")) for key in keys)


def test_the_promised_keys_do_the_promised_things() -> None:
    by_key = {key: action.id for action in ACTIONS for key in action.keys}
    promised = {
        "1": "overview", "2": "training", "3": "transfer", "4": "evaluation", "5": "results", "e": "evaluate-quick",
        "E": "evaluate-full", "t": "fetch", "b": "pin", "c": "capture", "z": "zoom", "question_mark": "help",
        "ctrl+p": "palette", "q": "quit", "f": "follow", "y": "copy", "escape": "back", "tab": "next-pane",
    }  # fmt: skip
    assert promised.items() <= by_key.items()


async def test_every_action_is_bound_to_its_keys_and_carried_out_by_something() -> None:
    app = DflashApp(RecordingConsole(story.finished()))
    async with app.run_test() as pilot:
        bound = {key: binding.action for key, binding in app._bindings}
        for action in ACTIONS:
            for key in action.keys:
                assert bound[key] == ("command_palette" if action.id == "palette" else f"do('{action.id}')")
            own = getattr(app, f"do_{action.id.replace('-', '_')}", None)
            assert action.act or action.id in VIEWS or action.id in MOVES or callable(own)
        await pilot.pause()


def test_help_names_every_action_and_nothing_else() -> None:
    text = "\n".join(each.plain for each in help_lines(200))
    for action in ACTIONS:
        keys = " ".join(shown_key(key) for key in action.keys) or "palette"
        assert f"{keys:<12}{action.description}" in text
    assert all(group in text for group in GROUPS)


def test_the_key_bar_shows_ranked_actions_in_order_and_drops_the_last_ones_first() -> None:
    ranked = [action for action in sorted(ACTIONS, key=lambda a: a.footer or 0) if action.footer is not None]
    whole, places = draw_keys(ACTIONS, 200)
    assert [action for _, _, action in places] == ranked
    short, places = draw_keys(ACTIONS, 60)
    assert short.width <= 60
    assert [action.id for _, _, action in places][-2:] == ["help", "quit"]
    assert [action for _, _, action in places][:-2] == ranked[: len(places) - 2]
    assert whole.plain.split()[:2] == ["e", "Evaluate"]


async def test_the_palette_offers_the_registry_and_the_themes() -> None:
    app = DflashApp(RecordingConsole())
    async with app.run_test() as pilot:
        await pilot.pause()
        offered = {command.title for command in app.get_system_commands(app.screen)}
    assert offered == {action.label for action in ACTIONS if action.palette} | {
        f"Theme: {name}" for name in ("chalk", "ember", "harbour", "parchment", "plain")
    }


async def test_the_palette_offers_each_baseline_to_compare_with_and_each_finished_run_to_show() -> None:
    console = RecordingConsole(story.finished())
    console.emit(happened.ResultsListed(("previous", "z-lab"), ("slammed5-step4000-quick-b16-1",)))
    app = DflashApp(console)
    async with app.run_test() as pilot:
        while app.connecting:
            await pilot.pause()
        offered = {command.title: command.callback for command in app.get_system_commands(app.screen)}
        offered["Compare with z-lab"]()
        offered["Show slammed5-step4000-quick-b16-1"]()
        assert "Compare with previous" in offered
    assert console.begun == [
        ("compare-with", {"name": "z-lab"}),
        ("show", {"run_id": "slammed5-step4000-quick-b16-1"}),
    ]


async def test_the_palette_shows_a_description_as_it_is_written() -> None:
    app = DflashApp(RecordingConsole())
    async with app.run_test() as pilot:
        await pilot.pause()
        shown = {Content.from_markup(command.help).plain for command in app.get_system_commands(app.screen)}
    assert {action.description for action in ACTIONS if action.palette} <= shown


def test_the_registry_can_be_printed_without_textual() -> None:
    code = (
        "import json, sys; from dflash_tui.tui.actions import key_table; print(json.dumps(key_table())); "
        "assert not any(name.split('.')[0] in ('textual', 'rich') for name in sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(printed) == key_table()


@pytest.mark.parametrize("row", key_table(), ids=lambda row: row["id"])
def test_each_row_of_the_key_table_says_what_it_is(row: dict[str, object]) -> None:
    assert set(row) == {"id", "keys", "description", "group", "asks_first"}
    assert row["description"]
