"""Make a config from flags, from what is found on the hosts, and from answers; put it in its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from dflash_tui.config import (
    BaselineConfig,
    Config,
    EvaluationConfig,
    TrainingConfig,
    load_config,
    parse_config,
)
from dflash_tui.config.placing import place, refuse_existing, refuse_unwritable
from dflash_tui.config.reading import training_name
from dflash_tui.config.writing import config_text
from dflash_tui.console.acts.init_hosts import LOCAL, InitHosts
from dflash_tui.console.acts.init_places import evaluation_place, training_place
from dflash_tui.console.acts.init_source import Question, Retraced, Source, StepBack
from dflash_tui.console.acts.init_wishes import Wishes, baseline_place, check_flags, wrong_path
from dflash_tui.console.answers import InitAnswer
from dflash_tui.console.discovery.evaluation import FoundEvaluation, find_evaluation, find_roots, hidden_states_of
from dflash_tui.console.discovery.near import FoundNear, find_near
from dflash_tui.console.discovery.offers import Offer, distinct
from dflash_tui.console.discovery.searching import missing
from dflash_tui.console.discovery.training import FoundTraining, find_training
from dflash_tui.hosts.asking import Ask

_PATH = "an absolute path"


async def init(
    path: Path,
    wishes: Wishes,
    source: Source,
    *,
    aliases: Sequence[str] = (),
    replace: bool = False,
    program: str = "dflash-tui",
    ask: Ask | None = None,
    told: Callable[[str], None],
) -> InitAnswer:
    """Write the config at `path`. `aliases` are hosts to offer, `ask` is shown unknown host keys, `told` hears what is
    done, `program` is what runs with this config. Nothing is written on any host. Raises ConfigError (also for what
    nobody answers) and HostError."""
    if not replace:
        refuse_existing(path)
    refuse_unwritable(path)
    check_flags(wishes)
    hosts, retraced = InitHosts(source, ask, told, aliases), Retraced(source, told)
    try:
        while True:
            try:
                config = await _made(str(path), wishes, retraced, tuple(aliases), hosts, told)
                break
            except StepBack:
                retraced.back()
                hosts.forget()
        if source.looks:
            await _tell_missing(config, hosts, told)
    finally:
        await hosts.close()
    text = config_text(config)
    parse_config(text, str(path))  # before it takes anybody's place
    kept = place(text, path, replace=replace)
    load_config(path)
    return InitAnswer(str(path), kept, (f"{program} check", program))


async def _made(
    path: str,
    wishes: Wishes,
    source: Source,
    aliases: tuple[str, ...],
    hosts: InitHosts,
    told: Callable[[str], None],
) -> Config:
    machine, host = await training_place(wishes, source, aliases, hosts)
    training = await _training(host, wishes, source, hosts, told)
    evaluation, found = None, FoundEvaluation()
    if not wishes.watch_only:
        others = tuple(alias for alias in aliases if alias != machine)
        name = await evaluation_place(wishes, source, others, hosts)
        if name:
            evaluation, found = await _evaluation(name, wishes, source, hosts, told)
    drafter = {}
    if evaluation is not None:
        near = await _near(evaluation, wishes, source, hosts)
        if config := await _drafter_config(evaluation.host, wishes, source, found, near):
            drafter["config"] = config
        baselines = await _baselines(wishes, source, evaluation, found, near, hosts)
    else:
        baselines = tuple(_baseline(text, hosts) for text in wishes.baselines)
    return Config(path, training, evaluation, hosts.known, drafter, baselines)


async def _training(
    host: str, wishes: Wishes, source: Source, hosts: InitHosts, told: Callable[[str], None]
) -> TrainingConfig:
    found = nothing = FoundTraining()
    if source.looks and not (wishes.log and wishes.checkpoints and wishes.arguments):
        find = partial(find_training, also=wishes.look)
        found = await hosts.look(host, "for a training (at most a minute)", find, nothing)
        _tell_unfinished(host, found.whole, told)
    ask = partial(_path, source, host=host, sought=found is not nothing)
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


async def _evaluation(
    host: str, wishes: Wishes, source: Source, hosts: InitHosts, told: Callable[[str], None]
) -> tuple[EvaluationConfig, FoundEvaluation]:
    found = nothing = FoundEvaluation()
    given = (wishes.root, wishes.target, wishes.prompts, wishes.hidden_states, wishes.python)
    if source.looks and not all(given):
        find = partial(find_evaluation, also=wishes.look)
        found = await hosts.look(host, "for targets, prompts and pythons (at most a minute)", find, nothing)
        _tell_unfinished(host, found.whole, told)
    ask = partial(_path, source, host=host, sought=found is not nothing)
    target = wishes.target or await ask("--target", "Which folder is the target model?", found.targets)
    prompts = wishes.prompts or await ask("--prompts", "Which file has the prompts?", found.prompts)
    root = wishes.root or await _root(host, found.home, prompts, source, hosts)
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
            f"Which Python on {host} has torch?",
            "a path or a name",
            lambda said: "",
            found.pythons,
            optional=True,
            none="python3",
            sought=found is not nothing,
        )
    )
    made = EvaluationConfig(host, root, target, prompts, tuple(states))
    return (EvaluationConfig(host, root, target, prompts, tuple(states), python) if python else made), found


async def _root(host: str, home: str, prompts: str, source: Source, hosts: InitHosts) -> str:
    nothing: tuple[Offer, ...] = ()
    find = partial(find_roots, home=home, prompts=prompts)
    offers = await hosts.look(host, "", find, nothing) if source.looks else nothing
    return await _path(source, "--root", "Which folder may receive runs and checkpoints?", offers, host=host)


async def _near(evaluation: EvaluationConfig, wishes: Wishes, source: Source, hosts: InitHosts) -> FoundNear:
    """What lies near the root, which only now is known."""
    nothing = FoundNear()
    if not source.looks or (wishes.drafter_config and wishes.baselines):
        return nothing
    find = partial(find_near, root=evaluation.root, also=(*wishes.look, evaluation.target))
    return await hosts.look(evaluation.host, "", find, nothing)


async def _drafter_config(host: str, wishes: Wishes, source: Source, found: FoundEvaluation, near: FoundNear) -> str:
    """Never a guess: what it says can't be seen from the weights."""
    return wishes.drafter_config or await source.answer(
        Question(
            "--drafter-config",
            f"Which config.json on {host} describes the drafter, where its checkpoints have none beside them?",
            _PATH,
            wrong_path,
            distinct(near.drafters, found.drafters),
            optional=True,
            sure=False,
            sought=source.looks,
        )
    )


async def _baselines(
    wishes: Wishes,
    source: Source,
    evaluation: EvaluationConfig,
    found: FoundEvaluation,
    near: FoundNear,
    hosts: InitHosts,
) -> tuple[BaselineConfig, ...]:
    if wishes.baselines:
        return tuple(_baseline(text, hosts) for text in wishes.baselines)
    file = await source.answer(
        Question(
            "--baseline",
            f"Which file on {evaluation.host} holds an older result to compare with?",
            _PATH,
            wrong_path,
            distinct(near.results, found.results),
            optional=True,
            sure=False,
            sought=source.looks,
        )
    )
    return (BaselineConfig("previous", file=file, host=evaluation.host),) if file else ()


def _baseline(text: str, hosts: InitHosts) -> BaselineConfig:
    """NAME=[HOST:]FILE; without a host the file lies here."""
    name, host, file = baseline_place(text)
    return BaselineConfig(name, file=file, host=hosts.machine(host, "--baseline") if host else "")


async def _path(
    source: Source,
    flag: str,
    text: str,
    offers: tuple[Offer, ...],
    *,
    host: str,
    optional: bool = False,
    sought: bool = False,
) -> str:
    question = Question(flag, f"{text[:-1]} on {host}?", _PATH, wrong_path, offers, optional=optional, sought=sought)
    return await source.answer(question)


async def _tell_missing(config: Config, hosts: InitHosts, told: Callable[[str], None]) -> None:
    """What the config names and its host does not have: it may come yet, and a misspelt one should be known now."""
    named: dict[str, dict[str, str]] = {}
    training, evaluation = config.training, config.evaluation
    places = [(training.host, "log"), (training.host, "checkpoints"), (training.host, "arguments")]
    for host, key in places:
        named.setdefault(host, {})[getattr(training, key)] = key
    if evaluation is not None:
        there = named.setdefault(evaluation.host, {})
        there |= {evaluation.target: "target", evaluation.prompts: "prompts"}
        there[str(config.drafter.get("config", ""))] = "drafter-config"
    for baseline in config.baselines:
        named.setdefault(baseline.host or LOCAL, {})[baseline.file] = f"baseline {baseline.name}"
    nothing: tuple[str, ...] = ()
    for host, paths in named.items():
        find = partial(missing, paths=[path for path in paths if path])
        for path in await hosts.look(host, "", find, nothing):
            told(f"{host}:{path} does not exist (--{paths[path]})")


def _tell_unfinished(host: str, whole: bool, told: Callable[[str], None]) -> None:
    if not whole:
        told(f"{host} has more files than were looked through; what is missing below can be named, or --look given")
