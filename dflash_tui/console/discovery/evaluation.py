"""What an evaluation needs on a host, found by looking: targets, prompts, hidden states, pythons, older results."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dflash_tui.checkpoints.family import declared_family
from dflash_tui.console.discovery.offers import Offer
from dflash_tui.console.discovery.searching import Seen, head, home_of, search, usual_places
from dflash_tui.console.quantities import counted, megabytes
from dflash_tui.hosts.base import Host, HostError, HostKeyRefused, HostUnreachable, LoginRefused

_NAMES = ("config.json", "*.safetensors", "*.jsonl", "python", "*results*.json")
_CAUSAL = ("ForCausalLM", "ForConditionalGeneration")
_CONFIG_BYTES = 1 << 20
_PROMPTS_BYTES = 4 << 20
_PYTHON_SECONDS = 10.0
_MOST_READ = 12
_MOST_CONFIGS = 24
_MOST_PYTHONS = 8
_OFFERED = 6

# -B: not even a __pycache__ is left behind.
_ASK_PYTHON = (
    "-B",
    "-c",
    "import json, sys\n"
    "from importlib.metadata import version\n"
    "from importlib.util import find_spec\n"
    "print(json.dumps([sys.version_info[:2], version('torch') if find_spec('torch') else None]))",
)


@dataclass(frozen=True)
class FoundEvaluation:
    """Offers for each key of [evaluation], the likeliest first; `drafters` are configs of drafters, `results` files
    that may be baselines. `prompt_ids` has the ids in each file of prompts, for `hidden_states_of`. `whole` is False
    when a limit ended the search."""

    targets: tuple[Offer, ...] = ()
    drafters: tuple[Offer, ...] = ()
    prompts: tuple[Offer, ...] = ()
    prompt_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pythons: tuple[Offer, ...] = ()
    results: tuple[Offer, ...] = ()
    seen: tuple[Seen, ...] = ()
    home: str = ""
    whole: bool = True


async def find_evaluation(host: Host, also: Sequence[str] = ()) -> FoundEvaluation:
    """Look around on a host; what lies in the folders `also` comes first. Raises HostError when it can't be asked."""
    home = await home_of(host)
    seen, whole = await search(host, usual_places(home), _NAMES, named=also)
    seen = tuple(item for item in seen if "/runs/" not in item.path)  # results of our own have their place already
    ids = await _prompts(host, seen)
    targets, drafters = await _models(host, seen)
    return FoundEvaluation(
        targets=targets,
        drafters=drafters,
        prompts=tuple(
            Offer(path, f"{counted(len(found), 'prompt')}, {found[0]} first")
            for path, found in list(ids.items())[:_OFFERED]
        ),
        prompt_ids=ids,
        pythons=await _pythons(host, seen),
        results=await _results(host, seen),
        seen=seen,
        home=home,
        whole=whole,
    )


def hidden_states_of(found: FoundEvaluation, prompts: str) -> tuple[Offer, ...]:
    """The folders that hold a file for some of these prompts, the fullest first."""
    ids = found.prompt_ids.get(prompts, ())
    folders: dict[str, set[str]] = {}
    for item in found.seen:
        stem, dot, suffix = item.name.rpartition(".")
        if dot and suffix == "safetensors" and stem in ids:
            folders.setdefault(item.folder, set()).add(stem)
    full = sorted(folders.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    return tuple(Offer(path, f"{len(stems)} of {counted(len(ids), 'prompt')}") for path, stems in full[:_OFFERED])


async def _models(host: Host, seen: Sequence[Seen]) -> tuple[tuple[Offer, ...], tuple[Offer, ...]]:
    """Folders with weights and the config of a causal language model, the largest first; and the configs of drafters,
    newest first."""
    weights: dict[str, int] = {}
    for item in seen:
        if item.name.endswith(".safetensors"):
            weights[item.folder] = weights.get(item.folder, 0) + item.size
    configs = [item for item in seen if item.name == "config.json"]
    configs.sort(key=lambda item: (not item.named, -weights.get(item.folder, 0)))
    targets, drafters = [], []
    for item in configs[:_MOST_CONFIGS]:
        config = json_object(await head(host, item, _CONFIG_BYTES))
        architecture, size = _architecture(config), weights.get(item.folder)
        if describes_drafter(config):
            drafters.append(((not item.named, -item.mtime), Offer(item.path, architecture)))
        elif size and architecture.endswith(_CAUSAL):
            targets.append(Offer(item.folder, f"{architecture}, {megabytes(size)}"))
    drafters.sort(key=lambda pair: pair[0])
    return tuple(targets[:_OFFERED]), tuple(offer for _, offer in drafters[:_OFFERED])


def describes_drafter(config: Mapping[str, Any]) -> bool:
    """Whether a config.json, whatever it is called, is of a drafter."""
    return declared_family(config) is not None or "dflash_config" in config


def _architecture(config: dict[str, Any]) -> str:
    named = config.get("architectures")
    return str(named[0]) if isinstance(named, list) and named else ""


async def _prompts(host: Host, seen: Sequence[Seen]) -> dict[str, tuple[str, ...]]:
    """The files of prompts, newest first, with the ids that they hold."""
    found: dict[str, tuple[str, ...]] = {}
    for item in [item for item in seen if item.name.endswith(".jsonl")][:_MOST_READ]:
        data = await head(host, item, _PROMPTS_BYTES)
        lines = data.split(b"\n") if len(data) == item.size else data.split(b"\n")[:-1]
        prompts = [json_object(line) for line in lines if line.strip()]
        if prompts and all(isinstance(p.get("id"), str) and isinstance(p.get("prompt"), str) for p in prompts):
            found[item.path] = tuple(prompt["id"] for prompt in prompts)
    return found


async def _pythons(host: Host, seen: Sequence[Seen]) -> tuple[Offer, ...]:
    """Pythons that have torch and are new enough; the newest environment first."""
    there = [item.path for item in seen if item.name == "python" and item.folder.endswith("/bin")]
    offers = []
    for path in (*there[:_MOST_PYTHONS], "python3"):
        try:
            done = await host.run([path, *_ASK_PYTHON], timeout=_PYTHON_SECONDS, check=False)
            version, torch = json.loads(done.stdout)
        except (HostUnreachable, HostKeyRefused, LoginRefused):
            raise
        except (HostError, ValueError, TypeError):
            continue
        if torch and tuple(version) >= (3, 10):
            offers.append(Offer(path, f"Python {version[0]}.{version[1]} with torch {torch}"))
    return tuple(offers)


async def _results(host: Host, seen: Sequence[Seen]) -> tuple[Offer, ...]:
    """Files that may be older results: JSON objects called so."""
    likely = [item for item in seen if item.name.endswith(".json") and "results" in item.name]
    offers = []
    for item in likely[:_OFFERED]:
        if json_object(await head(host, item, _PROMPTS_BYTES)):
            offers.append(Offer(item.path))
    return tuple(offers)


async def find_roots(host: Host, home: str, prompts: str) -> tuple[Offer, ...]:
    """Where runs could be kept: beside the prompts or in HOME, as far as this user may write there."""
    beside = posixpath.dirname(prompts)
    wanted = [beside] if beside not in ("", "/") else []
    if home:
        wanted.append(posixpath.join(home, "dflash"))
    offers = []
    for path in dict.fromkeys(wanted):
        there = path
        while there != "/" and not await _true(host, "-e", there):
            there = posixpath.dirname(there)
        if await _true(host, "-w", there):
            offers.append(Offer(path, "it is there" if there == path else "made at the first evaluation"))
    return tuple(offers)


async def _true(host: Host, test: str, path: str) -> bool:
    return (await host.run(["test", test, path], timeout=20, check=False)).status == 0


def json_object(data: bytes) -> dict[str, Any]:
    """The JSON object in some bytes; {} where there is none."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
