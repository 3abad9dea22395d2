"""What an evaluation will be, before anything is created: the manifest's content, and the same in words."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from dflash_tui import __version__
from dflash_tui.checkpoints.settings import OVERRIDES
from dflash_tui.evals.caches import Chosen
from dflash_tui.evals.errors import EvaluationRefused
from dflash_tui.evals.like import Like, in_words, made_again, other_texts
from dflash_tui.evals.preflight import preflight, queue
from dflash_tui.measure.anchors import PRESETS
from dflash_tui.records.codec import dumps, to_data
from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.manifest import MANIFEST_VERSION, CheckpointRef, Manifest, PromptRef, TargetRef
from dflash_tui.records.settings import DrafterSettings
from dflash_tui.records.survey import Survey, SurveyedPrompt

ANCHORS = "spaced"
CAPTURE_REFUSED = "capture.refused"  # a fact: why the hidden states that are missing can't be captured


@dataclass(frozen=True)
class Origin:
    """Where the checkpoint came from, before any move. `training` names the run, "" for a drafter of none."""

    host: str
    path: str
    training: str
    step: int | None
    size: int
    mtime: float
    inode: int
    sha256: str | None = None


@dataclass(frozen=True)
class Wish:
    """What was asked for. `block_size` 0: the drafter's own; `threads` 0: every usable core but one;
    `blocks_per_prompt` 0: the preset's. `name` is what a drafter of no training is called, `baseline` the configured
    baseline that it is, `like` the result that the evaluation is to be set against."""

    preset: str
    block_size: int
    threads: int
    prompts_path: str
    cache: Chosen
    blocks_per_prompt: int = 0
    name: str = ""
    baseline: str = ""
    like: Like | None = None


@dataclass(frozen=True)
class Plan:
    """A manifest without its run (run id, command, link), the plan in words, and what preflight warns of. `subject`
    is what a drafter of no watched training is called."""

    manifest: Manifest
    lines: tuple[str, ...]
    warnings: tuple[str, ...]
    subject: str = ""

    @property
    def captures(self) -> bool:
        """Whether the hidden states that are missing can be captured."""
        return all(fact.kind != CAPTURE_REFUSED for fact in self.manifest.facts)

    @property
    def prompts_present(self) -> tuple[str, ...]:
        """Ids of the prompts that will be evaluated."""
        return tuple(prompt.id for prompt in self.manifest.prompts if prompt.features)


def plan_evaluation(
    wish: Wish, origin: Origin, found: Survey, host: str, harness: str, facts: Sequence[Fact], now: datetime
) -> Plan:
    """Compose the request from what was surveyed on `host`. `facts` were learnt elsewhere (the training, the config).

    Raises EvaluationRefused with every reason at once.
    """
    threads = wish.threads or max(1, found.host.cpus_usable - 1)
    judged = preflight(found, host, threads)
    checkpoint, target = found.checkpoint, found.target
    if judged.refusals or checkpoint is None or target is None or checkpoint.settings is None:
        raise EvaluationRefused("; ".join(judged.refusals) or f"{host}: the checkpoint or the target can't be read")
    settings = checkpoint.settings
    block_size = wish.block_size or settings.block_size
    _check_lengths(found, wish, block_size, host)
    _check_texts(found, wish)
    per_prompt = wish.blocks_per_prompt or PRESETS[wish.preset][1]
    prompts = tuple(_prompt(item) for item in found.prompts)
    manifest = Manifest(
        version=MANIFEST_VERSION,
        run_id="",
        created_at=_iso(now.timestamp()),
        preset=wish.preset,
        anchors=ANCHORS,
        blocks_per_prompt=per_prompt,
        block_size=block_size,
        checkpoint=CheckpointRef(
            host=origin.host,
            path=origin.path,
            linked="",
            step=origin.step if origin.step is not None else checkpoint.step,
            training=origin.training,
            size=origin.size,
            mtime=origin.mtime,
            quick_id=checkpoint.quick_id,
            weights_id=checkpoint.weights_id,
            sha256=origin.sha256,
        ),
        drafter=settings,
        audit=checkpoint.audit,
        target=TargetRef(target.path, target.name, target.config_sha256),
        prompts_path=wish.prompts_path,
        prompts=prompts,
        hidden_states=wish.cache.folder,
        threads=threads,
        request_id="",
        harness=harness,
        tool_version=__version__,
        versions={"python": found.host.python, "torch": found.host.torch or ""},
        facts=(),
        baseline=wish.baseline,
    )
    learnt = (*facts, *_facts(manifest, origin, found, host, now))
    manifest = replace(manifest, facts=learnt, request_id=request_id(manifest))
    waits = queue(found, host, manifest.request_id)
    subject = f"baseline {wish.baseline}" if wish.baseline else wish.name
    return Plan(
        manifest, _words(manifest, wish, host, facts), (*waits, *_changed(found, wish), *judged.warnings), subject
    )


def _check_lengths(found: Survey, wish: Wish, block_size: int, host: str) -> None:
    """An anchor leaves a full horizon: where no completion is that long, nothing could be measured."""
    longest = max((item.completion_len or 0 for item in found.prompts if item.features), default=0)
    if 0 < longest < block_size:
        raise EvaluationRefused(
            f"{host}:{wish.cache.folder}: the longest completion has {longest} tokens; at block size {block_size} an "
            "anchor needs as many after it as the block; use a smaller block size, or longer completions"
        )


def _check_texts(found: Survey, wish: Wish) -> None:
    """A prompt of the same name and another text is another prompt."""
    if wish.like is not None and (others := other_texts(wish.like, found)):
        raise EvaluationRefused(
            f"{wish.prompts_path}: {', '.join(others[:8])} {'has' if len(others) == 1 else 'have'} another text than "
            f"in {wish.like.name}, so the two could not be compared; evaluate with the prompts that it was measured on"
        )


def _changed(found: Survey, wish: Wish) -> tuple[str, ...]:
    """What is not as it was when the result was measured that the evaluation is to be like."""
    if wish.like is None or not (again := made_again(wish.like, found)):
        return ()
    return (f"hidden states of {', '.join(again[:8])} are not the files that {wish.like.name} was measured on",)


def request_id(manifest: Manifest) -> str:
    """What makes two evaluations the same: weights, resolved settings, target, preset, prompts, cache, harness; and the
    training, since a drafter of none is evaluated without what its training is evidence of."""
    settings = to_data(manifest.settings)
    settings.pop("sources")
    asked = {
        "weights": manifest.checkpoint.weights_id,
        "training": manifest.checkpoint.training,
        "settings": settings,
        "block_size": manifest.block_size,
        "anchors": [manifest.anchors, manifest.blocks_per_prompt],
        "preset": manifest.preset,
        "target": manifest.target.config_sha256,
        "prompts": [[prompt.id, prompt.sha256, prompt.features_id] for prompt in manifest.prompts],
        "harness": manifest.harness,
    }
    return hashlib.sha256(dumps(asked).encode()).hexdigest()


def _prompt(item: SurveyedPrompt) -> PromptRef:
    usable = item.features is not None
    return PromptRef(item.id, item.sha256, item.features, item.features_id if usable else None)


def _facts(manifest: Manifest, origin: Origin, found: Survey, host: str, now: datetime) -> tuple[Fact, ...]:
    at = _iso(now.timestamp())
    assert found.checkpoint is not None
    checkpoint, settings = Source(origin.host, origin.path), manifest.settings
    cache, prompts = Source(host, manifest.hidden_states), Source(host, manifest.prompts_path)
    plan, said_mask = Source(host, "", "plan"), settings.sources.get("mask_token_id", "")
    facts = [
        Fact("eval.block_size", manifest.block_size, plan, at),
        Fact("eval.anchors", {"policy": manifest.anchors, "per_prompt": manifest.blocks_per_prompt}, plan, at),
        Fact("eval.taps", list(settings.taps), Source(origin.host, origin.path, settings.sources.get("taps", "")), at),
        Fact("eval.mask_token_id", settings.mask_token_id, replace(checkpoint, where=said_mask), at),
        Fact("checkpoint.file", _file(origin), checkpoint, at),
        Fact("weights.audit", to_data(found.checkpoint.audit), checkpoint, at),
        Fact("prompts.asked", [prompt.id for prompt in manifest.prompts], prompts, at),
        Fact("prompts.present", [prompt.id for prompt in manifest.prompts if prompt.features], cache, at),
        Fact("cache.files", {p.id: _iso(p.mtime) for p in found.prompts if p.features and p.mtime}, cache, at),
        Fact("target.identity", _target(manifest), Source(host, manifest.target.path, "config.json"), at),
    ]
    if found.capture_refused:
        facts.append(Fact(CAPTURE_REFUSED, found.capture_refused, Source(host, manifest.target.path), at))
    for item in found.prompts:
        if item.refused:
            refused = {"prompt": item.id, "reason": item.refused, "foreign": item.foreign}
            facts.append(Fact("cache.refused", refused, cache, at))
    if manifest.checkpoint.step is not None:
        facts.append(Fact("checkpoint.step", manifest.checkpoint.step, checkpoint, at))
    said = settings.sources.get("block_size", "")
    declared = said.startswith(OVERRIDES)  # what the user typed is no evidence of what the checkpoint holds
    trained = Source("", said) if declared else Source(origin.host, origin.path, said)
    facts.append(Fact("train.block_size", settings.block_size, trained, at))
    used = [prompt for prompt in found.prompts if prompt.features]
    if used:
        facts.append(Fact("cache.identity", _identity(used), cache, at))
    return tuple(facts)


def _file(origin: Origin) -> dict[str, object]:
    return {"size": origin.size, "mtime": _iso(origin.mtime), "inode": origin.inode}


def _target(manifest: Manifest) -> dict[str, object]:
    return {"name": manifest.target.name, "target_config_sha256": manifest.target.config_sha256}


def _identity(used: Sequence[SurveyedPrompt]) -> dict[str, object] | None:
    """The cache's key; None where a file records none. What the files do not agree on is None in it, and the taps are
    those that each of them has."""
    if not all(item.identity.get("target_config_sha256") and item.layer_ids for item in used):
        return None
    key: dict[str, object] = {}
    for name in ("target", "target_config_sha256"):
        said = {item.identity.get(name) for item in used}
        key[name] = said.pop() if len(said) == 1 else None
    first, *others = (item.layer_ids or () for item in used)
    key["taps"] = [tap for tap in first if all(tap in taps for taps in others)]
    return key


def _trained(manifest: Manifest, facts: Sequence[Fact]) -> str:
    """The training's block size where it is another than the evaluation's: as its arguments and its log say, else as
    what describes the drafter does; and what describes it where that says yet another."""
    described: int = manifest.settings.block_size
    told = [fact.value for fact in reversed(facts) if fact.kind == "train.block_size"]
    other = [size for size in told or [described] if size != manifest.block_size]
    if not other:
        return ""
    source = manifest.settings.sources.get("block_size", "")
    doubt = f" ({source} says {described})" if source and described != other[0] else ""
    return f", trained at {other[0]}{doubt}"


def _words(manifest: Manifest, wish: Wish, host: str, facts: Sequence[Fact]) -> tuple[str, ...]:
    asked, present = len(manifest.prompts), sum(prompt.features is not None for prompt in manifest.prompts)
    covered = f"{present} of {_counted(asked, 'prompt')} {'has' if asked == 1 else 'have'}"
    settings: DrafterSettings = manifest.settings
    trained = _trained(manifest, facts)
    return (
        f"{_named(manifest, wish)}: {settings.family}, {_counted(settings.num_hidden_layers, 'layer')}, "
        f"taps {', '.join(map(str, settings.taps))}",
        f"{manifest.preset} on {host}: {covered} hidden states, "
        f"up to {_counted(manifest.blocks_per_prompt, 'block')} each",
        f"block size {manifest.block_size}{trained}; {_counted(manifest.threads, 'thread')}, nice 10, float32",
        *((f"hidden states from {wish.cache.folder}: {wish.cache.why}",) if wish.cache.why else ()),
        *(in_words(wish.like) if wish.like is not None else ()),
    )


def _named(manifest: Manifest, wish: Wish) -> str:
    checkpoint = manifest.checkpoint
    step = f"step {checkpoint.step}" if checkpoint.step is not None else ""
    if wish.baseline:
        return f"baseline {wish.baseline}, {checkpoint.host}:{checkpoint.path}"
    if not checkpoint.training:
        place = f"{checkpoint.host}:{checkpoint.path}"
        called = f"{wish.name}, {place}" if wish.name else place
        return f"{called}{step and f', {step}'}, a drafter of no watched training"
    return f"{step} of {checkpoint.training}" if step else checkpoint.path


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _iso(seconds: float | None) -> str:
    moment = datetime.fromtimestamp(seconds or 0.0, UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
