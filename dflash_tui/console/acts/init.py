"""Make a config from flags, from what is found on the hosts, and from answers; put it in its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dflash_tui.config import (
    BaselineConfig,
    Config,
    ConfigError,
    EvaluationConfig,
    TrainingConfig,
    load_config,
    parse_config,
)
from dflash_tui.config.placing import place, refuse_existing
from dflash_tui.config.reading import training_name
from dflash_tui.config.writing import config_text
from dflash_tui.console.acts.init_hosts import LOCAL, InitHosts, container_name, launcher_of, wrong_host
from dflash_tui.console.acts.init_source import Question, Source
from dflash_tui.console.answers import InitAnswer
from dflash_tui.console.discovery.containers import Container
from dflash_tui.console.discovery.evaluation import FoundEvaluation, find_evaluation, hidden_states_of, roots_of
from dflash_tui.console.discovery.offers import Offer
from dflash_tui.console.discovery.training import FoundTraining, find_training
from dflash_tui.hosts.asking import Ask

NEXT = ("dflash-tui check", "dflash-tui")
NOWHERE = "nowhere"
_HOST = "alias, user@host:port or local"
_PATH = "an absolute path"


@dataclass(frozen=True)
class Wishes:
    """What the flags say; "" or () where they are silent."""

    training_host: str = ""
    via: str = ""
    container: str = ""
    log: str = ""
    checkpoints: str = ""
    arguments: str = ""
    watch_only: bool = False
    eval_host: str = ""
    root: str = ""
    target: str = ""
    prompts: str = ""
    hidden_states: tuple[str, ...] = ()
    python: str = ""
    drafter_config: str = ""
    baselines: tuple[str, ...] = ()
    look: tuple[str, ...] = ()


async def init(
    path: Path,
    wishes: Wishes,
    source: Source,
    *,
    aliases: Sequence[str] = (),
    replace: bool = False,
    ask: Ask | None = None,
    told: Callable[[str], None],
) -> InitAnswer:
    """Write the config at `path`. `aliases` are hosts to offer, `ask` is shown unknown host keys, `told` hears what is
    done. Nothing is written on any host. Raises ConfigError (also for what nobody answers) and HostError."""
    if not replace:
        refuse_existing(path)
    _check_flags(wishes)
    hosts = InitHosts(source, ask, told)
    try:
        config = await _made(str(path), wishes, source, tuple(aliases), hosts, told)
    finally:
        await hosts.close()
    text = config_text(config)
    parse_config(text, str(path))  # before it takes anybody's place
    kept = place(text, path, replace=replace)
    load_config(path)
    return InitAnswer(str(path), kept, NEXT)


async def _made(
    path: str,
    wishes: Wishes,
    source: Source,
    aliases: tuple[str, ...],
    hosts: InitHosts,
    told: Callable[[str], None],
) -> Config:
    machine, host = await _training_host(wishes, source, aliases, hosts)
    training = await _training(host, wishes, source, hosts, told)
    evaluation, found = None, FoundEvaluation()
    if not wishes.watch_only:
        others = tuple(alias for alias in aliases if alias != machine)
        name = await _evaluation_host(wishes, source, others, hosts)
        if name:
            evaluation, found = await _evaluation(name, wishes, source, hosts, told)
    drafter = {}
    if evaluation is not None and (config := await _drafter_config(evaluation.host, wishes, source, found)):
        drafter["config"] = config
    baselines = await _baselines(wishes, source, evaluation, found, hosts)
    return Config(path, training, evaluation, hosts.known, drafter, baselines)


async def _training_host(wishes: Wishes, source: Source, aliases: tuple[str, ...], hosts: InitHosts) -> tuple[str, str]:
    """The machine that is reached, and where on it the training runs: itself, or a container's name."""
    asked = wishes.via or (wishes.training_host if not wishes.via else "")
    flag = "--via" if wishes.via else "--training-host"
    if not asked:
        offers = (*map(Offer, aliases), Offer(LOCAL, "this machine"))
        asked = await source.answer(
            Question(
                flag,
                "Which host does the training run on, itself or in a container there?",
                _HOST,
                wrong_host,
                offers,
                sure=len(aliases) == 1,
            )
        )
    machine = hosts.machine(asked, flag)
    named = wishes.training_host if wishes.via else ""
    if len(words := launcher_of(wishes.container)) > 1:
        return machine, hosts.container(named or container_name(words), machine, words)
    if wishes.container:
        chosen: Container | None = _called(await hosts.containers(machine, must=True), words[0], machine)
    elif source.looks or wishes.via:
        chosen = await _container(machine, source, hosts, must=bool(wishes.via))
    else:
        chosen = None
    if chosen is None:
        return machine, machine
    return machine, hosts.container(named or chosen.suggested, machine, chosen.prefix)


def _called(found: Sequence[Container], called: str, machine: str) -> Container:
    """The container of that id or name."""
    match = [item for item in found if called in (item.id, item.name)]
    if not match:
        listed = "; ".join(item.text for item in found) or "no tool there lists any"
        raise ConfigError(
            f"--container: found {called!r}, which is not on {machine} ({listed}); name another, or a whole launcher "
            "such as 'pct exec 200 --'"
        )
    return match[0]


async def _container(machine: str, source: Source, hosts: InitHosts, *, must: bool) -> Container | None:
    """The container that the training runs in, where it runs in one; `must`: it does."""
    found = await hosts.containers(machine)
    if not found and not must:
        return None
    running = [item for item in found if item.running]
    # A Proxmox host is there for its guests; a docker host may well train itself.
    guests = must or any(item.tool == "pct" for item in running)
    itself = () if must else (Offer("", "no container", shown=f"{machine} itself"),)
    offers = tuple(Offer(f"{item.tool} {item.id}", shown=item.text) for item in found)
    answer = await source.answer(
        Question(
            "--container",
            f"Which container on {machine} does the training run in?",
            "",
            lambda said: f"{said!r} is none of these",
            (*offers, *itself) if guests else (*itself, *offers),
            sure=len(running) == 1 or not guests,
        )
    )
    return next((item for item in found if f"{item.tool} {item.id}" == answer), None)


async def _training(
    host: str, wishes: Wishes, source: Source, hosts: InitHosts, told: Callable[[str], None]
) -> TrainingConfig:
    found = FoundTraining()
    if source.looks and not (wishes.log and wishes.checkpoints and wishes.arguments):
        find = partial(find_training, also=wishes.look)
        found = await hosts.look(host, "for a training (at most a minute)", find, found)
        _tell_unfinished(host, found.whole, told)
    ask = partial(_path, source, host=host)
    log = wishes.log or await ask("--log", "Which file is the trainer's log?", found.logs)
    checkpoints = wishes.checkpoints or await ask(
        "--checkpoints", "Which folder are its checkpoints saved in?", found.checkpoints
    )
    arguments = wishes.arguments or await ask(
        "--arguments",
        "Which file has the trainer's arguments (JSON: evidence of the trained block size)?",
        found.arguments,
        optional=True,
    )
    return TrainingConfig(training_name(checkpoints), host, log, checkpoints, arguments)


async def _evaluation_host(wishes: Wishes, source: Source, others: tuple[str, ...], hosts: InitHosts) -> str:
    """Where drafters are evaluated; "" for nowhere."""
    asked = wishes.eval_host
    if not asked:
        ends = (Offer(LOCAL, "this machine"), Offer(NOWHERE, "only watch"))
        asked = await source.answer(
            Question(
                "--eval-host (or --watch-only)",
                "Where are drafters evaluated?",
                _HOST,
                wrong_host,
                (*map(Offer, others), *ends),
                sure=len(others) == 1,
            )
        )
    return "" if asked == NOWHERE else hosts.machine(asked, "--eval-host")


async def _evaluation(
    host: str, wishes: Wishes, source: Source, hosts: InitHosts, told: Callable[[str], None]
) -> tuple[EvaluationConfig, FoundEvaluation]:
    found = FoundEvaluation()
    given = (wishes.root, wishes.target, wishes.prompts, wishes.hidden_states, wishes.python)
    if source.looks and not all(given):
        find = partial(find_evaluation, also=wishes.look)
        found = await hosts.look(host, "for targets, prompts and pythons (at most a minute)", find, found)
        _tell_unfinished(host, found.whole, told)
    ask = partial(_path, source, host=host)
    target = wishes.target or await ask("--target", "Which folder is the target model?", found.targets)
    prompts = wishes.prompts or await ask("--prompts", "Which file has the prompts?", found.prompts)
    root = wishes.root or await ask(
        "--root", "Which folder may receive runs and checkpoints?", roots_of(found, prompts)
    )
    new = Offer(f"{root.rstrip('/')}/hidden_states", "dflash-tui capture fills it")
    states = wishes.hidden_states or (
        await ask(
            "--hidden-states",
            "Which folder has, or shall have, the target's hidden states?",
            hidden_states_of(found, prompts) or (new,),
        ),
    )
    python = wishes.python or await source.answer(
        Question(
            "--python",
            "Which Python there has torch?",
            "a path or a name",
            lambda said: "",
            found.pythons,
            optional=True,
        )
    )
    made = EvaluationConfig(host, root, target, prompts, tuple(states))
    return (EvaluationConfig(host, root, target, prompts, tuple(states), python) if python else made), found


async def _drafter_config(host: str, wishes: Wishes, source: Source, found: FoundEvaluation) -> str:
    """Never a guess: what it says can't be seen from the weights."""
    return wishes.drafter_config or await source.answer(
        Question(
            "--drafter-config",
            f"Which config.json on {host} describes the drafter, where its checkpoints have none beside them?",
            _PATH,
            _wrong_path,
            found.drafters,
            optional=True,
            sure=False,
        )
    )


async def _baselines(
    wishes: Wishes,
    source: Source,
    evaluation: EvaluationConfig | None,
    found: FoundEvaluation,
    hosts: InitHosts,
) -> tuple[BaselineConfig, ...]:
    if wishes.baselines:
        return tuple(_baseline(text, hosts) for text in wishes.baselines)
    if evaluation is None or not found.results:
        return ()
    file = await source.answer(
        Question(
            "--baseline",
            f"Which file on {evaluation.host} holds an older result to compare with?",
            _PATH,
            _wrong_path,
            found.results,
            optional=True,
            sure=False,
        )
    )
    return (BaselineConfig("previous", file=file, host=evaluation.host),) if file else ()


def _baseline(text: str, hosts: InitHosts) -> BaselineConfig:
    """NAME=[HOST:]FILE; without a host the file lies here."""
    name, _, place = text.partition("=")
    host, _, file = place.partition(":") if not place.startswith("/") else ("", "", place)
    if not name or _wrong_path(file):
        raise ConfigError(f"--baseline: found {text!r}, expected NAME=/path here, or NAME=HOST:/path")
    if not host and not Path(file).is_file():
        raise ConfigError(f"--baseline: {file} is no file on this machine; one on a host is named {name}=HOST:{file}")
    return BaselineConfig(name, file=file, host=hosts.machine(host, "--baseline") if host else "")


async def _path(
    source: Source, flag: str, text: str, offers: tuple[Offer, ...], *, host: str, optional: bool = False
) -> str:
    question = Question(flag, f"{text[:-1]} on {host}?", _PATH, _wrong_path, offers, optional=optional)
    return await source.answer(question)


def _wrong_path(said: str) -> str:
    return "" if said.startswith("/") else f"found {said!r}, expected an absolute path"


def _check_flags(wishes: Wishes) -> None:
    """Before anybody is asked anything."""
    for key in ("log", "checkpoints", "arguments", "root", "target", "prompts", "drafter_config"):
        value = getattr(wishes, key)
        if value and (trouble := _wrong_path(value)):
            raise ConfigError(f"--{key.replace('_', '-')}: {trouble}")
    for value in wishes.hidden_states:
        if trouble := _wrong_path(value):
            raise ConfigError(f"--hidden-states: {trouble}")
    if wishes.watch_only and wishes.eval_host:
        raise ConfigError("--watch-only: given beside --eval-host; leave one of them out")


def _tell_unfinished(host: str, whole: bool, told: Callable[[str], None]) -> None:
    if not whole:
        told(f"{host} has more files than were looked through; what is missing below can be named, or --look given")
