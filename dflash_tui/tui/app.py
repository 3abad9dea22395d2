"""The app: thin. It binds the registry's keys, passes state down and acts up; rules live below it."""

from __future__ import annotations

import gc
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.markup import escape
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer
from textual.worker import Worker, WorkerState

from dflash_tui.console.state import State
from dflash_tui.hosts.base import KeyOffer
from dflash_tui.tui.actions import ACTIONS, BY_ID, Action
from dflash_tui.tui.contract import ConsoleLike
from dflash_tui.tui.lines import Line, clean, line
from dflash_tui.tui.screens.overview import VIEWS, Overview
from dflash_tui.tui.stopping import RUNNING, others, stopped_job, stopping
from dflash_tui.tui.theme import DEFAULT, PLAIN, find_theme, load_themes, plain_theme, shipped_folder, textual_theme

FLUSH_SECONDS = 0.25  # screens change at most four times a second
FAR = 1_000_000  # lines: beyond either end of anything
MOVES = {"up": -1, "down": 1, "page-up": -10, "page-down": 10, "top": -FAR, "bottom": FAR}

Connect = Callable[[], Awaitable["ConsoleLike | None"]]


class StateChanged(Message):
    """The console folded events; the newest state is at `DflashApp.newest`."""


class DflashApp(App[None]):
    """The console's face.

    `connect` runs after the first paint that shows all four panels (default: the console's own `start`); where it
    returns a console, that one takes the place of `console`, so that making it may wait, too; until then `state` is
    shown. `themes` are further folders of theme files.
    """

    CSS_PATH = Path(__file__).with_name("app.tcss")  # absolute: a subclass may lie elsewhere
    TITLE = "dflash-tui"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(",".join(action.keys), f"do('{action.id}')", action.label, id=action.id, show=action.footer is not None)
        for action in ACTIONS
        if action.keys and action.id != "palette"
    ]
    COMMAND_PALETTE_BINDING = BY_ID["palette"].keys[0]  # Textual binds that one itself

    def __init__(
        self,
        console: ConsoleLike | None = None,
        connect: Connect | None = None,
        *,
        state: State | None = None,
        theme: str = DEFAULT,
        themes: Sequence[Path] = (),
    ) -> None:
        # Textual's own NO_COLOR turns every colour to grey, black on black with an ANSI theme; so it must not see it.
        no_color = os.environ.pop("NO_COLOR", None)
        try:
            super().__init__()
        finally:
            if no_color is not None:
                os.environ["NO_COLOR"] = no_color
        self.session = console
        self.newest = console.state if console is not None else state or State()
        self._connect = connect
        self._stop_listening: Callable[[], None] | None = None
        self._resting: Timer | None = None
        self._told = False  # a StateChanged is under way
        self._noticed: object = None
        self.connecting = False
        self._plain, self._wanted, self._folders = bool(no_color), theme, (shipped_folder(), *themes)
        self._choose_theme(theme)
        self.overview = Overview(self.newest)

    def _choose_theme(self, wanted: str) -> None:
        """Only the one that is needed now: reading the others can wait until something is on the screen."""
        for name in tuple(self.available_themes):
            self.unregister_theme(name)
        self.register_theme(plain_theme())
        found = None if self._plain else find_theme(wanted, self._folders)
        if found is not None:
            self.register_theme(textual_theme(found))
        self.theme = found.name if found is not None else PLAIN

    def _load_other_themes(self) -> None:
        found, complaints = load_themes(self._folders)
        for theme in found.values():
            self.register_theme(textual_theme(theme))
        if self._wanted not in self.available_themes:
            complaints.append(f"theme: found {self._wanted!r}, known: {', '.join(self.available_themes)}")
        for sentence in complaints:
            self.notify(clean(sentence), severity="warning", timeout=15, markup=False)

    def get_default_screen(self) -> Screen[None]:
        """The overview is the whole app; help and questions lie above it."""
        return self.overview

    def on_mount(self) -> None:
        """Listen, and connect once there is something to look at."""
        self._listen()
        self.overview.call_after_refresh(self._painted)

    def _listen(self) -> None:
        if self._stop_listening is not None:
            self._stop_listening()
        self._stop_listening = self.session.listen(self._changed) if self.session is not None else None

    def _painted(self) -> None:
        """The first refresh is out; wait for another one while a panel had no room yet."""
        if any(panel.display and not panel.drawing.lines for panel in self.overview.panels.values()):
            self.overview.call_after_refresh(self._painted)
            return
        self.first_paint()
        gc.enable()  # it rested since `start.make_app`
        self._load_other_themes()
        if self.overview.focused is None:
            self.overview.panels["training"].focus()
        self.connecting = True
        self.run_worker(self._start(), name="connect", exit_on_error=False)

    def first_paint(self) -> None:
        """All four panels are on the screen and nothing has connected yet (the start-up bench measures here)."""

    async def _start(self) -> None:
        if self._connect is not None:
            console = await self._connect()
            if console is not None:
                self.session, self.newest = console, console.state
                self._listen()
                self.post_message(StateChanged())
        elif self.session is not None:
            await self.session.start()
        self.connecting = False

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A connection that could not be made is said, not raised: the console may still be looked at."""
        if event.state == WorkerState.ERROR:
            self.connecting = False
            self.notify(clean(str(event.worker.error)), severity="error", timeout=60, markup=False)

    def _changed(self, state: State) -> None:
        """From the console's tasks: no widget is touched here."""
        self.newest = state
        if not self._told:
            self._told = True
            self.post_message(StateChanged())

    def on_state_changed(self) -> None:
        """Show the newest state soon, but not more often than four times a second."""
        self._told = False
        if self._resting is None:
            self._show()
            self._resting = self.set_timer(FLUSH_SECONDS, self._flushed)

    def _flushed(self) -> None:
        self._resting = None
        if self._shown is not self.newest:
            self.on_state_changed()

    _shown: State | None = None
    _asked: KeyOffer | None = None

    def _show(self) -> None:
        self._shown = self.newest
        self.overview.show(self.newest)
        self._tell_notices()
        self._ask_about_key()

    def _ask_about_key(self) -> None:
        """Show the question that waits; once, however often the state comes with it."""
        offer = self.newest.question
        if offer is None or offer == self._asked:
            return
        self._asked = offer
        from dflash_tui.tui.screens.trust import TrustKey

        def answered(yes: bool | None) -> None:
            if self.session is not None:
                self.session.begin("trust", fingerprint=offer.fingerprint, yes=bool(yes))

        self.push_screen(TrustKey(offer), answered)

    def _tell_notices(self) -> None:
        notices = self.newest.notices
        known = next((i for i in range(len(notices) - 1, -1, -1) if notices[i] is self._noticed), -1)
        for notice in notices[known + 1 :]:
            if notice.sentence in self.overview.shown_errors():
                continue  # it stands in a panel, which a toast would only hide
            severity = {"info": "information", "warn": "warning", "error": "error"}[notice.level]
            timeout = {"info": 4, "warn": 8, "error": 16}[notice.level]
            self.notify(clean(notice.sentence), severity=severity, timeout=timeout, markup=False)  # type: ignore[arg-type]
        self._noticed = notices[-1] if notices else None

    # -- acting -----------------------------------------------------------------------------------------------------

    async def action_do(self, name: str) -> None:
        """Carry out an action of the registry: an act of the console, a view, a move in a panel, or a method here."""
        action = BY_ID[name]
        panel = self.overview.focused_panel
        if action.act:
            self._act(action)
        elif name in VIEWS:
            self.overview.view(name)
        elif name in MOVES:
            if panel is not None:
                panel.move(MOVES[name])
        else:
            done = getattr(self, f"do_{name.replace('-', '_')}")()
            if done is not None:
                await done

    def _act(self, action: Action) -> None:
        if not action.confirm:
            self._begin(action.act, action.options)
            return
        if not self._something_runs():
            self.notify("nothing runs that could be stopped", markup=False)
            return
        from dflash_tui.tui.screens.confirm import Confirm

        asked, said, host = stopping(self.newest)
        question, options = Confirm(asked, said, host), {**action.options, **stopped_job(self.newest)}
        self.push_screen(question, lambda yes: self._begin(action.act, options) if yes else None)

    def _begin(self, act: str, options: Mapping[str, Any]) -> None:
        if self.session is None or (self.connecting and act != "reconnect"):
            self.notify("not connected yet", severity="warning", markup=False)
            return
        self.session.begin(act, **options)

    def do_zoom(self) -> None:
        """The focused panel full screen, and back."""
        panel = self.overview.focused_panel
        if self.overview.shown != "overview":
            self.overview.view("overview")
        elif panel is not None and panel.id in VIEWS:
            self.overview.view(panel.id)

    def do_back(self) -> None:
        """Out of the zoom; dialogs close themselves."""
        self.overview.view("overview")

    def do_follow(self) -> None:
        """Hold the log or follow it again."""
        panel = self.overview.focused_panel
        if panel is None or panel.follow() is None:
            self.notify("no log here: 2 shows the training's, 4 the evaluation's", markup=False)
        self.overview.show(self.newest)

    async def do_copy(self) -> None:
        """Copy what the focused panel points at."""
        from dflash_tui.tui.copying import copy

        panel = self.overview.focused_panel
        text = panel.drawing.copies if panel is not None else None
        if not text:
            self.notify("nothing to copy here", markup=False)
            return
        place = await copy(text, os.environ, self.copy_to_clipboard)
        head, _, rest = text.partition("\n")
        size = f" and {rest.count(chr(10)) + 1} more lines" if rest else ""
        self.notify(
            f"{clean(head[:60])}{'…' if len(head) > 60 else ''}{size}\nto {place}", title="copied", markup=False
        )

    def do_next_pane(self) -> None:
        """Focus the next panel."""
        self.screen.focus_next()

    def do_previous_pane(self) -> None:
        """Focus the previous panel."""
        self.screen.focus_previous()

    def do_theme(self) -> None:
        """Use the next theme, and say how to keep it."""
        names = sorted(self.available_themes)
        self.use_theme(names[(names.index(self.theme) + 1) % len(names)])

    def use_theme(self, name: str) -> None:
        """Use a theme until the app ends."""
        self.theme = name
        self.notify(f'keep it with [interface] theme = "{name}" in config.toml', title=f"theme {name}", markup=False)

    def do_help(self) -> None:
        """The keys, the words, and what was said lately."""
        from dflash_tui.tui.screens.help import Help

        self.push_screen(Help(self.newest.notices))

    def do_palette(self) -> None:
        """Find an action by name."""
        self.action_command_palette()

    async def do_quit(self) -> None:
        """Leave; ask while something runs."""
        await self.action_quit()

    async def action_quit(self) -> None:
        """Textual's own way out (ctrl+q) asks the same question."""
        if not self._something_runs():
            self.exit()
            return
        from dflash_tui.tui.screens.confirm import Confirm

        if isinstance(self.screen, Confirm):
            return
        self.push_screen(Confirm("Leave while this runs?", self._what_runs()), lambda yes: self.exit() if yes else None)

    def _something_runs(self) -> bool:
        state = self.newest
        return bool(state.transfers) or state.transfer.state in RUNNING or state.evaluation.state in RUNNING

    def _what_runs(self) -> tuple[Line, ...]:
        state, said = self.newest, []
        if state.transfer.state in RUNNING:
            to = state.transfer.route[-1] if state.transfer.route else "its destination"
            said.append(line("the transfer to ", (to, "strong"), " would end unfinished"))
        if state.beside:
            said.append(line(f"so would {others(state)}"))
        if state.evaluation.state in RUNNING:
            where = state.evaluation.host
            said.append(
                line("the evaluation on ", (where, "strong"), " goes on without this screen and is found again")
                if where
                else line("the evaluation has not started yet; it would not")
            )
        return tuple(said)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: the registry, and each theme by name."""
        for action in ACTIONS:
            if action.palette:
                yield SystemCommand(action.label, escape(action.description), self._doing(action))
        for name in self.newest.choices.baselines:
            what = "Set the shown result against it, and newer ones, until this console closes"
            yield SystemCommand(f"Compare with {escape(name)}", what, self._beginning("compare-with", name=name))
        for run_id in self.newest.choices.runs:
            what = "Show this result in the results panel"
            yield SystemCommand(f"Show {escape(run_id)}", what, self._beginning("show", run_id=run_id))
        for name in sorted(self.available_themes):
            yield SystemCommand(f"Theme: {name}", "Colours, until the app ends", self._using(name))

    def _doing(self, action: Action) -> Callable[[], None]:
        def do() -> None:
            self.call_later(self.action_do, action.id)

        return do

    def _beginning(self, act: str, **options: str) -> Callable[[], None]:
        return lambda: self._begin(act, options)

    def _using(self, name: str) -> Callable[[], None]:
        return lambda: self.use_theme(name)

    def on_unmount(self) -> None:
        """Stop listening; who made the console closes it."""
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
