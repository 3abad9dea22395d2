"""The console: it owns hosts, state and jobs. Faces listen to it; acts do their work through it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from dflash_tui.config import Config, EvaluationConfig
from dflash_tui.console import events as happened
from dflash_tui.console.errors import TROUBLE, AlreadyMoving, ConsoleError
from dflash_tui.console.questions import Questions
from dflash_tui.console.state import State, TrainingPane, fold
from dflash_tui.hosts.base import Host
from dflash_tui.results.store import Store
from dflash_tui.transfer.company import Company
from dflash_tui.transfer.pace import Shared
from dflash_tui.watch.events import WatchLost

if TYPE_CHECKING:
    from dflash_tui.hosts.asking import Ask, Asker
    from dflash_tui.watch.saved import CheckpointLister

FLUSH_SECONDS = 0.25  # faces hear of changes at most four times a second
CLOSE_SECONDS = 5.0


class Console:
    """Everything that runs while a face is open, and everything a headless command needs.

    `hosts` maps the config's host names to hosts (None: made from the config at first use), `store` keeps runs and
    pins, `told` hears every event at once, `ask` is asked about unknown host keys (None: they are refused).
    Construction does nothing; `start` begins to watch. Acts may be awaited directly (headless) or begun as jobs (the
    app).
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        hosts: Mapping[str, Host] | None = None,
        *,
        told: Callable[[happened.Event], None] | None = None,
        ask: Ask | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.config, self.store, self.clock = config, store, clock
        self.state = State(training=TrainingPane(name=config.training.name, host=config.training.host), now=clock())
        self.turn = asyncio.Lock()  # evaluations and captures take turns: they share one host's cores
        self.pace = Shared(  # transfers share one limit, a few at a time
            config.transfer.bytes_per_second, company=Company(store.state / "transfers")
        )
        self.folders: dict[tuple[str, str], asyncio.Lock] = {}  # into one folder of a host one at a time
        self.against: str | None = None
        self.common = False  # whether results are compared on what both measured
        self.lister: CheckpointLister | None = None  # remembers complete checkpoints, so that none is read twice
        self.questions = Questions(self.emit)
        self._ask = ask
        self._asker: Asker | None = None
        self._hosts = hosts
        self._told = told
        self._listeners: list[Callable[[State], None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._flush: asyncio.TimerHandle | None = None
        self._jobs = 0
        self._working: dict[str, asyncio.Task[Any]] = {}

    @property
    def hosts(self) -> Mapping[str, Host]:
        """Hosts by the config's names."""
        if self._hosts is None:
            from dflash_tui.console.links import make_hosts
            from dflash_tui.hosts.asking import Asker

            self._asker = Asker(self._ask) if self._ask is not None else None
            self._hosts = make_hosts(self.config, self._asker)
        return self._hosts

    def host(self, name: str) -> Host:
        """A host by the config's name. Raises ConsoleError."""
        try:
            return self.hosts[name]
        except KeyError:
            raise ConsoleError(f"no host {name!r}; known: {', '.join(self.hosts)}") from None

    @property
    def training_host(self) -> Host:
        """Where the training runs."""
        return self.host(self.config.training.host)

    @property
    def evaluation(self) -> EvaluationConfig:
        """How evaluations are done. Raises ConsoleError when the config only watches."""
        if self.config.evaluation is None:
            raise ConsoleError(
                f"{self.config.path}: without [evaluation] this console only watches; the README shows what it holds"
            )
        return self.config.evaluation

    @property
    def evaluation_host(self) -> Host:
        """Where evaluations run. Raises ConsoleError when the config only watches."""
        return self.host(self.evaluation.host)

    def new_job(self) -> str:
        """A name that no other job of this console has, for what the running task does from now on."""
        self._jobs += 1
        job = f"job {self._jobs}"
        if (task := asyncio.current_task()) in self._tasks:
            self._working[job] = task
        return job

    @asynccontextmanager
    async def waited_turn(self, preset: str) -> AsyncIterator[str]:
        """The turn on the evaluation host, with the name of the job that has it; waiting for it is told."""
        job = self.new_job()
        if self.turn.locked():
            self.emit(happened.JobQueued(job, preset))
        try:
            await self.turn.acquire()
        except asyncio.CancelledError:
            self.emit(happened.EvaluationEnded(job, "", "stopped"))
            raise
        try:
            yield job
        finally:
            self.turn.release()

    def listen(self, callback: Callable[[State], None]) -> Callable[[], None]:
        """Call back with the new state after changes, at most four times a second. The result stops it."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    def emit(self, event: happened.Event) -> None:
        """Fold an event into the state and tell the listeners soon."""
        self.state = fold(self.state, event)
        if self._told is not None:
            self._told(event)
        if self._flush is None and self._listeners:
            self._flush = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self._tell)

    def _tell(self) -> None:
        self._flush = None
        for callback in tuple(self._listeners):
            callback(self.state)

    async def start(self) -> None:
        """Begin to watch, read the configured baselines, and attach to evaluations that were left running. From now on
        unknown host keys are asked about in the state."""
        self._ask = self._ask or self.questions.ask
        self._spawn(self._tick(), "tick")
        self._spawn(self._watch(), "watch")
        self._spawn(self._prepare(), "prepare")

    async def close(self) -> None:
        """End every task and connection. Detached evaluations go on; they are found again at the next start."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
        if self._flush is not None:
            self._flush.cancel()
        if self._asker is not None:
            await self._asker.close()
        for host in (self._hosts or {}).values():
            with suppress(*TROUBLE, TimeoutError):
                await asyncio.wait_for(host.close(), CLOSE_SECONDS)

    def begin(self, act: str, **options: Any) -> None:
        """Start an act as a job; what goes wrong is told as a notice and in the pane that shows it.

        An equal one may wait behind one that works, because there may be a newer checkpoint by then; a third (a key
        that repeats) is not begun.
        """
        name = " ".join((act, *(f"{key}={value}" for key, value in sorted(options.items()))))
        if sum(task.get_name() == f"job {name}" for task in self._tasks) > 1:
            self.emit(happened.Noticed("info", f"{' '.join((act, *map(str, options.values())))} waits already"))
            return
        self.do(self._act(act)(**options), name)

    def do(self, work: Coroutine[Any, Any, object], name: str) -> None:
        """Run some work as a job."""
        self._spawn(self._job(work), f"job {name}")

    def does(self, name: str) -> bool:
        """Whether work that was begun under a name still runs."""
        return any(task.get_name() == f"job {name}" for task in self._tasks)

    def _act(self, name: str) -> Callable[..., Coroutine[Any, Any, object]]:
        """An act by its name; what acts need (transfer, evaluation, statistics) is loaded at the first one, not before
        the first screen."""
        from dflash_tui.console.acts import capture, evaluate, external, fetch, shown, stop, trust

        acts: dict[str, Callable[..., Coroutine[Any, Any, object]]] = {
            "evaluate": partial(evaluate.evaluate, self),
            "evaluate-like": partial(evaluate.evaluate_like_baseline, self),
            "external": partial(external.evaluate_external, self),
            "fetch": partial(fetch.fetch, self),
            "capture": partial(capture.capture, self),
            "pin": partial(shown.pin_shown, self),
            "common": partial(shown.toggle_common, self),
            "compare-with": partial(shown.compare_with, self),
            "show": partial(shown.show_run, self),
            "stop": partial(stop.stop_shown, self),
            "trust": partial(trust.answer, self),
            "reconnect": self._reconnect,
        }
        if name not in acts:
            raise ConsoleError(f"no act {name!r}; known: {', '.join(acts)}")
        return acts[name]

    def cancel(self, job: str) -> None:
        """Cancel a job that was begun here, and no other. Detached work goes on."""
        if job in self._working:
            self._working[job].cancel()

    async def _job(self, work: Coroutine[Any, Any, object]) -> None:
        try:
            await work
        except AlreadyMoving as error:
            self.emit(happened.Noticed("info", str(error)))
        except TROUBLE as error:
            self.emit(happened.Noticed("error", str(error)))

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        jobs = [job for job, working in self._working.items() if working is task]
        for job in jobs:
            del self._working[job]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broke(task.get_name(), jobs, error)

    def _broke(self, name: str, jobs: Sequence[str], error: BaseException) -> None:
        """A mistake in this program: what stopped with it does not look as if it went on."""
        sentence = f"{name} ended unexpectedly: {type(error).__name__}: {error}"
        if name == "watch":
            self.emit(WatchLost(sentence))
        for job in jobs:
            self.emit(happened.EvaluationEnded(job, "", "failed", error=sentence))
            self.emit(happened.TransferEnded(job, error=sentence))
        self.emit(happened.Noticed("error", sentence))

    async def _tick(self) -> None:
        while True:
            self.emit(happened.Ticked(self.clock()))
            await asyncio.sleep(1)

    async def _watch(self) -> None:
        from dflash_tui.watch.training import TrainingWatch

        training = self.config.training
        watch = TrainingWatch(self.training_host, training.log, training.checkpoints)
        self.lister = watch.lister
        await watch.run(self.emit)

    async def _reconnect(self) -> None:
        self.emit(happened.Noticed("info", f"connects to {self.config.training.host} again"))
        for task in tuple(self._tasks):
            if task.get_name() == "watch":
                task.cancel()
                await asyncio.wait({task}, timeout=CLOSE_SECONDS)
        # Asked twice at once, the other asker may have begun it while this one waited.
        if not any(task.get_name() == "watch" for task in self._tasks):
            self._spawn(self._watch(), "watch")

    async def _prepare(self) -> None:
        from dflash_tui.console.acts import baselines, external, reattach, shown

        await external.tidy(self)  # a baseline may lie where the script writes
        await self._job(baselines.refresh(self))
        try:
            shown.show_newest(self)
            shown.tell_choices(self)
        except TROUBLE as error:  # a damaged result must not hide a run that still works
            self.emit(happened.Noticed("warn", str(error)))
        try:
            left = reattach.left_running(self.store, self.config.evaluation.host) if self.config.evaluation else ()
        except TROUBLE as error:
            self.emit(happened.Noticed("warn", str(error)))
            return
        for run_id in left:
            self.do(reattach.reattach(self, run_id), "reattach")
