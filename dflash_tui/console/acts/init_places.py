"""Where the training runs and where drafters are evaluated: a machine, or a container on one."""

from __future__ import annotations

from collections.abc import Sequence

from dflash_tui.config import ConfigError
from dflash_tui.console.acts.init_hosts import LOCAL, InitHosts, container_name, launcher_of, wrong_host
from dflash_tui.console.acts.init_source import Question, Source
from dflash_tui.console.acts.init_wishes import Wishes
from dflash_tui.console.discovery.containers import Container
from dflash_tui.console.discovery.offers import Offer, listed

NOWHERE = "nowhere"
_HOST = "alias, user@host:port or local"


async def training_place(wishes: Wishes, source: Source, aliases: tuple[str, ...], hosts: InitHosts) -> tuple[str, str]:
    """The machine that is reached, and where on it the training runs: itself, or a container's name."""
    flag = "--via" if wishes.via else "--training-host"
    asked = wishes.via or wishes.training_host
    if not asked:
        asked = await source.answer(
            Question(
                flag,
                "Which host does the training run on, itself or in a container there?",
                _HOST,
                wrong_host,
                (*map(Offer, aliases), Offer(LOCAL, "this machine")),
                sure=len(aliases) == 1,
            )
        )
    machine = hosts.machine(asked, flag)
    named = wishes.training_host if wishes.via else ""
    place = await _inside(
        machine,
        wishes.container,
        "--container",
        "does the training run in",
        source,
        hosts,
        named=named,
        must=bool(wishes.via),
    )
    return machine, place


async def evaluation_place(wishes: Wishes, source: Source, others: tuple[str, ...], hosts: InitHosts) -> str:
    """Where drafters are evaluated: a machine's or a container's name, "" for nowhere."""
    asked = wishes.eval_host
    if not asked:
        asked = await source.answer(
            Question(
                "--eval-host (or --watch-only)",
                "Where are drafters evaluated?",
                _HOST,
                wrong_host,
                (*map(Offer, others), Offer(LOCAL, "this machine"), Offer(NOWHERE, "only watch")),
                sure=len(others) == 1,
            )
        )
    if asked == NOWHERE:
        return ""
    machine = hosts.machine(asked, "--eval-host")
    return await _inside(machine, wishes.eval_container, "--eval-container", "evaluates", source, hosts)


async def _inside(
    machine: str,
    given: str,
    flag: str,
    does: str,
    source: Source,
    hosts: InitHosts,
    *,
    named: str = "",
    must: bool = False,
) -> str:
    """The machine itself, or the name of the container on it that `given` means or that is chosen; `must`: one is."""
    words = launcher_of(given, flag)
    if len(words) > 1:
        return hosts.container(container_name(words), machine, words, flag, named=named)
    if words:
        chosen: Container | None = _called(await hosts.containers(machine, must=True), words[0], machine, flag)
    elif source.looks or must:
        chosen = await _choice(machine, flag, does, source, hosts, must=must)
    else:
        chosen = None
    if chosen is None:
        return machine
    return hosts.container(chosen.suggested, machine, chosen.prefix, flag, named=named)


def _called(found: Sequence[Container], called: str, machine: str, flag: str) -> Container:
    """The container of that id or name."""
    match = [item for item in found if called in (item.id, item.name)]
    if not match:
        there = listed([item.text for item in found]) or "no tool there lists any"
        raise ConfigError(
            f"{flag}: found {called!r}, which is not on {machine} ({there}); name another, or a whole launcher such "
            "as 'pct exec 200 --'"
        )
    return match[0]


async def _choice(
    machine: str, flag: str, does: str, source: Source, hosts: InitHosts, *, must: bool
) -> Container | None:
    """A container that is chosen, or None for the machine itself."""
    found = await hosts.containers(machine)
    if not found and not must:
        return None
    running = [item for item in found if item.running]
    # A Proxmox host is there for its guests; a docker host may well do the work itself.
    guests = must or any(item.tool == "pct" for item in running)
    itself = () if must else (Offer("", "no container", shown=f"{machine} itself"),)
    offers = tuple(Offer(f"{item.tool} {item.id}", shown=item.text) for item in found)
    answer = await source.answer(
        Question(
            flag,
            f"Which container on {machine} {does}?",
            "",
            lambda said: f"{said!r} is none of these",
            (*offers, *itself) if guests else (*itself, *offers),
            sure=len(running) == 1 or not guests,
        )
    )
    return next((item for item in found if f"{item.tool} {item.id}" == answer), None)
