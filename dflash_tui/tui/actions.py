"""Everything a key can do, once: bindings, footer, help, palette and `dflash-tui keys` are made from this list.

Plain data without Textual, so that a headless command can print it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Group = Literal["Look", "Do", "In a pane", "The app"]
GROUPS: tuple[Group, ...] = ("Look", "Do", "In a pane", "The app")


@dataclass(frozen=True)
class Action:
    """`id` is what configuration and code call it. `keys` in Textual's spelling, the first is the one shown.
    `label` is the footer's word; `footer` its rank there (lower stays longer when room is short), None = not shown.
    `act` and `options` are what the console is asked to begin; without one, the face itself does it.
    `confirm` is the question that is asked first. `palette`: whether the command palette offers it."""

    id: str
    keys: tuple[str, ...]
    label: str
    description: str
    group: Group
    footer: int | None = None
    act: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    confirm: str = ""
    palette: bool = True


ACTIONS: tuple[Action, ...] = (
    Action("overview", ("1",), "Overview", "All four panels together", "Look"),
    Action("training", ("2",), "Training", "The training, full screen: curve, checkpoints, log", "Look"),
    Action("transfer", ("3",), "Transfer", "The transfer, full screen: each hop, sizes, hashes", "Look"),
    Action("evaluation", ("4",), "Evaluation", "The evaluation, full screen: plan, prompts, log", "Look"),
    Action("results", ("5",), "Results", "The results, full screen: every metric, prompt and caveat", "Look"),
    Action("zoom", ("z", "enter"), "Zoom", "The focused panel full screen, and back", "Look", 7),
    Action(
        "evaluate-quick", ("e",), "Evaluate",
        "Evaluate the newest checkpoint, quick preset: 3 prompts × 15 blocks; moves it first if it has to move",
        "Do", 1, "evaluate", {"preset": "quick"},
    ),
    Action(
        "evaluate-full", ("E",), "Full",
        "Evaluate the newest checkpoint, full preset: 10 prompts × 30 blocks",
        "Do", 2, "evaluate", {"preset": "full"},
    ),
    Action(
        "evaluate-external", ("x",), "Own script",
        "Evaluate the newest checkpoint with your own script, which [harness] in the config names",
        "Do", None, "external", {"preset": "quick"},
    ),
    Action(
        "evaluate-like", (), "Like",
        "Evaluate the newest checkpoint like the baseline: on its prompts, blocks, block size, anchors, hidden states",
        "Do", None, "evaluate-like",
    ),
    Action("fetch", ("t",), "Fetch", "Move the newest complete checkpoint to the evaluation host", "Do", 4, "fetch"),
    Action(
        "capture", ("c",), "Capture", "Make the missing hidden states with the target, so that more prompts count",
        "Do", 5, "capture",
    ),
    Action("pin", ("b",), "Pin", "Pin the shown result as a baseline, its records kept read-only", "Do", 6, "pin"),
    Action(
        "common", ("m",), "Common", "Compare on what both measured: common prompts, common horizon; again: on all",
        "Do", None, "common",
    ),
    Action("reconnect", ("R",), "Reconnect", "Try the lost connection again now", "Do", None, "reconnect"),
    Action(
        "stop", ("K",), "Stop", "Stop the running evaluation or transfer; what was measured or moved is kept",
        "Do", 3, "stop", confirm="Stop what runs now?",
    ),
    Action("up", ("up", "k"), "Up", "One line up", "In a pane", palette=False),
    Action("down", ("down", "j"), "Down", "One line down", "In a pane", palette=False),
    Action("page-up", ("pageup",), "Page up", "One page up", "In a pane", palette=False),
    Action("page-down", ("pagedown",), "Page down", "One page down", "In a pane", palette=False),
    Action("top", ("home", "g"), "Top", "To the first line", "In a pane", palette=False),
    Action("bottom", ("end", "G"), "Bottom", "To the last line", "In a pane", palette=False),
    Action("follow", ("f",), "Follow", "Hold the log still, or follow it again", "In a pane", 8),
    Action("copy", ("y",), "Copy", "Copy what the focused panel points at; it says what and where to", "In a pane", 9),
    Action("next-pane", ("tab",), "Next", "Focus the next panel", "In a pane", palette=False),
    Action("previous-pane", ("shift+tab",), "Previous", "Focus the previous panel", "In a pane", palette=False),
    Action("back", ("escape",), "Back", "One step back: dialog, then zoom", "The app", palette=False),
    Action("theme", (), "Theme", "Use the next theme", "The app"),
    Action("help", ("question_mark",), "Help", "The keys, the words used here, what was said lately", "The app", 10),
    Action("palette", ("ctrl+p",), "Palette", "Find any action by name", "The app", palette=False),
    Action(
        "quit", ("q", "ctrl+q"), "Quit", "Leave; asks only while a transfer or an evaluation runs", "The app", 11,
    ),
)  # fmt: skip

BY_ID: Mapping[str, Action] = {action.id: action for action in ACTIONS}

_SHOWN = {"question_mark": "?", "escape": "esc", "pageup": "pgup", "pagedown": "pgdn", "up": "↑", "down": "↓"}


def shown_key(key: str) -> str:
    """A key as people read it: ?, esc, ctrl+p, E."""
    return _SHOWN.get(key, key)


def key_table() -> list[dict[str, Any]]:
    """The registry as plain data, one row an action, for `dflash-tui keys`."""
    return [
        {
            "id": action.id,
            "keys": [shown_key(key) for key in action.keys],
            "description": action.description,
            "group": action.group,
            "asks_first": bool(action.confirm),
        }
        for action in ACTIONS
    ]
