"""What is brought of a checkpoint: what is left, when nothing can be, and that it makes no difference to the result."""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from dflash_tui.checkpoints.slim_sidecar import read_sidecar
from dflash_tui.console import events as happened
from dflash_tui.console.acts.evaluate import evaluate
from dflash_tui.console.acts.fetch import Fetched, fetch
from dflash_tui.console.acts.moving import READINGS, Load, carry
from dflash_tui.console.console import Console
from dflash_tui.hosts.base import Completed, Entry, Process
from dflash_tui.hosts.local import LocalHost
from dflash_tui.records.codec import loads
from dflash_tui.records.manifest import Manifest
from dflash_tui.transfer.errors import SourceChanged
from tests.cases import known
from tests.checkpoints.test_slim_kept import ARGS
from tests.console.world import Bench, bench

FROZEN = {"embed_tokens.weight", "lm_head.weight"}


class Watched(LocalHost):
    """A host that remembers what was asked of it; without `python3` on it where that is said."""

    def __init__(self, name: str, *, python: bool = True) -> None:
        super().__init__(name)
        self.ran: list[tuple[str, ...]] = []
        self._python = python

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 60.0, check: bool = True
    ) -> Completed:
        self.ran.append(tuple(argv))
        if argv[0] == "python3" and not self._python:
            return Completed(127, b"", "python3: not found")
        return await super().run(argv, stdin=stdin, timeout=timeout, check=check)

    @property
    def hashed(self) -> int:
        """Commands that made a CRC-32 or a SHA-256 of a range."""
        return sum("zlib.crc32" in " ".join(argv) for argv in self.ran)


@pytest.fixture
async def tiny(tmp_path: Path) -> AsyncIterator[Bench]:
    made = bench(tmp_path)
    made.save(4000)
    yield made
    await made.console.close()


def with_hosts(tiny: Bench, **hosts: LocalHost) -> Bench:
    """The same with other hosts."""
    console = Console(tiny.console.config, tiny.console.store, {**tiny.console.hosts, **hosts}, told=tiny.told.append)
    return replace(tiny, console=console)


def model(path: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(path, weights_only=False)["model_state_dict"]
    return found


def change(path: Path, **tensors: torch.Tensor) -> None:
    """Write a checkpoint anew with other tensors; `embed_tokens__weight` is embed_tokens.weight."""
    saved = torch.load(path, weights_only=False)
    saved["model_state_dict"].update({name.replace("__", "."): tensor for name, tensor in tensors.items()})
    torch.save(saved, path)


def weights(done: Fetched) -> Path:
    return Path(done.folder, done.names[0])


def left(done: Fetched) -> set[str]:
    return {what for what, _ in done.brought.cargo.left}


def notices(tiny: Bench) -> list[str]:
    return [event.sentence for event in tiny.told if isinstance(event, happened.Noticed)]


def manifest_of(tiny: Bench, run_id: str) -> Manifest:
    path = tiny.root / "lab" / "eval" / "runs" / run_id / "manifest.json"
    return loads(Manifest, path.read_bytes(), str(path))


async def test_a_slim_copy_answers_the_same_request_as_a_full_one(tiny: Bench) -> None:
    slim = await evaluate(tiny.console)
    config = replace(tiny.console.config, transfer=replace(tiny.console.config.transfer, mode="full"))
    whole = Console(config, tiny.console.store, tiny.console.hosts)
    again = await evaluate(whole, again=True)
    known = await evaluate(whole)
    await whole.close()
    one, other = (manifest_of(tiny, done.run_id) for done in (slim, again))
    assert one.checkpoint.weights_id == other.checkpoint.weights_id
    assert one.request_id == other.request_id
    assert known.existing
    assert slim.evaluation.blocks == again.evaluation.blocks
    linked = [tiny.root / "lab" / "eval" / "runs" / m.run_id / m.checkpoint.linked for m in (one, other)]
    assert linked[0].stat().st_size < linked[1].stat().st_size / 3


async def test_a_full_copy_that_lies_there_is_used_and_nothing_moves(tiny: Bench) -> None:
    full = await fetch(tiny.console, mode="full")
    done = await fetch(tiny.console)
    assert done.already_there
    assert (done.folder, done.names) == (full.folder, full.names)
    assert notices(tiny)[-1] == f"lab:{full.folder} holds the whole copy of it already"
    assert not Path(full.folder.removesuffix("-full")).exists()
    # What is no more there, or is of another file, answers for nothing.
    weights(full).unlink()
    slim = await fetch(tiny.console)
    assert (Path(slim.folder).name, slim.brought.cargo.copy) == ("step_4000", "slim")


async def test_a_full_copy_of_a_file_that_was_replaced_is_not_used(tiny: Bench) -> None:
    await fetch(tiny.console, mode="full")
    os.utime(tiny.workspace / "checkpoints" / "step_4000" / "checkpoint.pt", (1, 1))
    slim = await fetch(tiny.console)
    assert (Path(slim.folder).name, slim.brought.cargo.copy) == ("step_4000", "slim")


async def test_an_evaluation_of_a_full_copy_answers_without_a_byte_that_moves(tiny: Bench) -> None:
    await fetch(tiny.console, mode="full")
    first = await evaluate(tiny.console)
    again = await evaluate(tiny.console)
    assert (first.existing, again.existing) == (False, True)
    assert sum(event.bytes for event in tiny.of(happened.TransferEnded)[1:]) == 0


async def test_the_manifest_says_what_was_evaluated_and_where_the_original_lies(tiny: Bench) -> None:
    done = await evaluate(tiny.console)
    manifest = manifest_of(tiny, done.run_id)
    original = tiny.workspace / "checkpoints" / "step_4000" / "checkpoint.pt"
    assert (manifest.checkpoint.host, manifest.checkpoint.size) == ("ct200", original.stat().st_size)
    assert original.is_relative_to(manifest.checkpoint.path)
    (fact,) = [fact for fact in manifest.facts if fact.kind == "checkpoint.copy"]
    assert (fact.value["copy"], fact.value["original"]) == ("slim", original.stat().st_size)
    assert set(fact.value["left"]) == {"optimizer", "frozen embed/lm_head"}
    assert (fact.source.host, fact.source.path) == (manifest.checkpoint.host, manifest.checkpoint.path)


async def test_beside_a_slim_copy_lies_what_it_was_made_from(tiny: Bench) -> None:
    done = await fetch(tiny.console)
    said = read_sidecar(Path(done.folder, "checkpoint.pt.slim.json").read_bytes())
    original = tiny.workspace / "checkpoints" / "step_4000" / "checkpoint.pt"
    assert (said.source["host"], said.source["path"]) == ("ct200", str(original))
    assert said.source["size"] == original.stat().st_size
    assert {item.name for item in said.left} >= FROZEN
    assert dict(said.compared) == dict.fromkeys(FROZEN, "crc32")
    assert (said.output, said.size) == ("checkpoint.pt", weights(done).stat().st_size)


@pytest.mark.parametrize("name", sorted(FROZEN))
async def test_a_pair_that_was_trained_along_is_kept(tiny: Bench, name: str) -> None:
    path = tiny.workspace / "checkpoints" / "step_4000" / "checkpoint.pt"
    trained = model(path)[name].clone()
    trained[0, 0] += 1
    change(path, **{name.replace(".", "__"): trained})
    done = await fetch(tiny.console)
    assert set(model(weights(done))) & FROZEN == {name}
    assert torch.equal(model(weights(done))[name], trained)


async def test_the_same_values_in_another_dtype_are_not_the_target_s_bytes(tiny: Bench) -> None:
    path = tiny.workspace / "checkpoints" / "step_4000" / "checkpoint.pt"
    kept = model(path)["embed_tokens.weight"].to(torch.float64)
    change(path, embed_tokens__weight=kept)
    done = await fetch(tiny.console)
    assert set(model(weights(done))) & FROZEN == {"embed_tokens.weight"}


async def test_without_a_target_that_can_be_read_the_pair_comes_along_and_it_is_said(tiny: Bench) -> None:
    gone = replace(tiny.console.evaluation, target=str(tiny.root / "nowhere"))
    tiny.console.config = replace(tiny.console.config, evaluation=gone)
    done = await fetch(tiny.console)
    assert left(done) == {"optimizer"}
    assert set(model(weights(done))) >= FROZEN
    assert any("the target can't be read" in sentence for sentence in notices(tiny))


async def test_a_tied_target_s_head_is_its_embedding(tiny: Bench) -> None:
    folder = tiny.root / "tied"
    shutil.copytree(tiny.lab.target.folder, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    tied = replace(tiny.console.evaluation, target=str(folder))
    tiny.console.config = replace(tiny.console.config, evaluation=tied)
    path = tiny.workspace / "checkpoints" / "step_4000" / "checkpoint.pt"
    done = await fetch(tiny.console)
    own_head = not torch.equal(model(path)["lm_head.weight"], model(path)["embed_tokens.weight"])
    assert ("lm_head.weight" in model(weights(done))) == own_head
    change(path, lm_head__weight=model(path)["embed_tokens.weight"].clone())
    assert not set(model(weights(await fetch(tiny.console)))) & FROZEN


async def test_what_was_compared_is_not_read_again_for_the_next_checkpoint(tiny: Bench) -> None:
    tiny.save(5000)
    lab = Watched("lab")
    first, second = with_hosts(tiny, lab=lab), with_hosts(tiny, lab=lab)
    await fetch(first.console, what="4000")
    once = lab.hashed
    done = await fetch(second.console, what="5000")
    assert once > 0
    assert lab.hashed == once
    assert left(done) == {"optimizer", "frozen embed/lm_head"}
    target = next(path for path in tiny.lab.target.folder.iterdir() if path.suffix == ".safetensors")
    os.utime(target, (1, 1))
    await fetch(with_hosts(tiny, lab=lab).console, what="4000")
    assert lab.hashed > once


async def test_a_host_without_python_tells_by_sha256(tiny: Bench) -> None:
    done = await fetch(with_hosts(tiny, lab=Watched("lab", python=False)).console)
    said = read_sidecar(Path(done.folder, "checkpoint.pt.slim.json").read_bytes())
    assert dict(said.compared) == dict.fromkeys(FROZEN, "sha256")


async def test_safetensors_keep_no_crc_and_are_compared_by_sha256(tiny: Bench) -> None:
    folder = tiny.workspace / "checkpoints" / "step_5000"
    folder.mkdir()
    saved = model(tiny.workspace / "checkpoints" / "step_4000" / "checkpoint.pt")
    save_file({name: tensor.clone() for name, tensor in saved.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text((tiny.lab.case.folder / "config.json").read_text())
    torch.save({"state": torch.ones(4096)}, folder / "optimizer.pt")
    done = await fetch(tiny.console)
    assert (done.step, done.brought.cargo.copy) == (5000, "slim")
    assert left(done) == {"optimizer", "frozen embed/lm_head"}
    got = load_file(weights(done))
    assert set(saved) - set(got) == FROZEN
    assert all(torch.equal(saved[name], tensor) for name, tensor in got.items())
    assert set(done.names) == {"model.safetensors", "config.json"}
    assert not Path(done.folder, "optimizer.pt").exists()
    full = await fetch(tiny.console, mode="full")
    assert full.names[0] == "model.safetensors"
    assert Path(full.folder, "optimizer.pt").read_bytes() == (folder / "optimizer.pt").read_bytes()


async def test_where_nothing_would_be_left_the_file_comes_as_it_is(tiny: Bench) -> None:
    folder = tiny.workspace / "checkpoints" / "step_5000"
    folder.mkdir()
    saved = model(tiny.workspace / "checkpoints" / "step_4000" / "checkpoint.pt")
    only = {name: tensor.clone() for name, tensor in saved.items() if name not in FROZEN}
    save_file(only, folder / "model.safetensors")
    done = await fetch(tiny.console)
    assert (done.brought.cargo.copy, done.brought.cargo.left, done.brought.cargo.why) == ("plain", (), "")
    assert weights(done).read_bytes() == (folder / "model.safetensors").read_bytes()
    assert [path.name for path in Path(done.folder).iterdir() if path.name[0] != "."] == ["model.safetensors"]


async def test_what_can_t_be_taken_apart_comes_as_it_is_and_it_is_said_why(tiny: Bench) -> None:
    path = tiny.workspace / "checkpoints" / "step_5000" / "checkpoint.pt"
    path.parent.mkdir()
    torch.save({"step": 5000, "optimizer": {"state": torch.ones(100)}}, path)
    done = await fetch(tiny.console)
    assert (done.step, done.brought.cargo.copy) == (5000, "plain")
    assert weights(done).read_bytes() == path.read_bytes()
    assert "it can't be made slim" in done.brought.cargo.why
    assert done.brought.cargo.why == tiny.console.state.transfer.why


async def test_what_remembers_comparisons_only_spares_work(tiny: Bench) -> None:
    tiny.root.joinpath("state").mkdir(exist_ok=True)
    (tiny.root / "state" / "digests.json").write_text('{"version": 1, "digests": ["nonsense"]}')
    assert left(await fetch(tiny.console)) == {"optimizer", "frozen embed/lm_head"}
    assert json.loads((tiny.root / "state" / "digests.json").read_text())["digests"]


async def test_a_console_that_only_watches_brings_it_where_it_is_told_to(tiny: Bench) -> None:
    watching = Console(replace(tiny.console.config, evaluation=None), tiny.console.store, tiny.console.hosts)
    done = await fetch(watching, to=f"local:{tiny.root}/here")
    assert (done.folder, left(done)) == (f"{tiny.root}/here/step_4000", {"optimizer"})
    await watching.close()


class Rewriting(LocalHost):
    """A host that has other bytes written over a file each time that a path is listed, or read, as often as `times`
    says, from when it is `armed`."""

    def __init__(self, name: str, path: Path, rewrite: Callable[[], None], times: int) -> None:
        super().__init__(name)
        self._path, self._rewrite, self.times, self.armed = str(path), rewrite, times, False

    def _happens(self, path: str) -> None:
        if self.armed and self.times and path == self._path:
            self.times -= 1
            self._rewrite()

    async def list(self, path: str) -> list[Entry]:
        found = await super().list(path)
        self._happens(path)
        return found

    async def read(self, path: str, offset: int, length: int) -> bytes:
        found = await super().read(path, offset, length)
        self._happens(path)
        return found


def trained_on(path: Path, container: str) -> tuple[Callable[[], None], list[dict[str, torch.Tensor]]]:
    """Write a checkpoint in a container; what writes it anew in place, with each tensor one more, and all that were."""
    before = {name: tensor.contiguous().clone() for name, tensor in model(RAW).items()}
    states = [before]

    def save(tensors: dict[str, torch.Tensor], into: Path) -> None:
        if container == "safetensors":
            save_file(tensors, into, metadata={"note": "x" * 16 * len(states)})
        else:
            data = {"model_state_dict": tensors, "step": 5000, "optimizer": torch.ones(9999), "args": "x" * len(states)}
            torch.save(data, into, _use_new_zipfile_serialization=container == "zip")

    def again() -> None:
        states.append({name: tensor + 1 for name, tensor in states[-1].items()})
        aside = path.with_name("aside")
        save(states[-1], aside)
        with path.open("r+b") as file:
            file.write(aside.read_bytes())
            file.truncate()
        aside.unlink()

    path.parent.mkdir()
    save(before, path)
    os.utime(path, (1, 1))  # it is settled
    return again, states


def tensors_of(path: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = load_file(path) if path.suffix == ".safetensors" else model(path)
    return found


RAW = known("cases/checkpoints/raw-step/step_4000/checkpoint.pt")
CONTAINERS = pytest.mark.parametrize("container", ["zip", "legacy", "safetensors"])


def rewritten(tiny: Bench, container: str, times: int, mode: str) -> tuple[Console, list[dict[str, torch.Tensor]]]:
    """A console whose newest checkpoint is written again while it is looked at: between its structure and the plan."""
    name = "model.safetensors" if container == "safetensors" else "checkpoint.pt"
    path = tiny.workspace / "checkpoints" / "step_5000" / name
    again, states = trained_on(path, container)
    if mode == "slim":
        hosts = {"lab": Rewriting("lab", tiny.lab.target.folder, again, times)}
    else:
        hosts = {"ct200": Rewriting("ct200", path, again, times)}

    def told(event: happened.Event) -> None:
        tiny.told.append(event)
        if isinstance(event, happened.TransferStarted):
            for host in hosts.values():
                host.armed = True

    return Console(tiny.console.config, tiny.console.store, {**tiny.console.hosts, **hosts}, told=told), states


@CONTAINERS
async def test_what_is_written_again_between_reading_and_planning_is_read_again(tiny: Bench, container: str) -> None:
    console, states = rewritten(tiny, container, 1, "slim")
    done = await fetch(console)
    assert len(states) == 2
    found = tensors_of(weights(done))
    assert all(torch.equal(tensor, states[-1][name]) for name, tensor in found.items())
    assert set(found) == set(states[-1])  # its embedding was trained along: it is not the target's any more
    assert [sentence for sentence in notices(tiny) if sentence.endswith("it is read again")]
    await console.close()


@CONTAINERS
async def test_what_is_written_again_all_the_time_is_given_up_and_nothing_lies_there(
    tiny: Bench, container: str
) -> None:
    console, states = rewritten(tiny, container, 99, "slim")
    with pytest.raises(SourceChanged, match=r"written again or replaced.*; plan again"):
        await fetch(console)
    assert len(states) == 1 + READINGS
    assert len([sentence for sentence in notices(tiny) if sentence.endswith("it is read again")]) == READINGS - 1
    root = Path(console.evaluation.root, "checkpoints")
    assert not [path for path in root.rglob("*") if path.is_file()]
    await console.close()


async def test_a_whole_copy_is_of_one_state_too(tiny: Bench) -> None:
    console, states = rewritten(tiny, "zip", 1, "full")
    done = await fetch(console, mode="full")
    assert len(states) == 2
    found = tensors_of(weights(done))
    assert set(found) == set(states[-1])
    assert all(torch.equal(tensor, states[-1][name]) for name, tensor in found.items())
    assert [sentence for sentence in notices(tiny) if sentence.endswith("it is read again")]
    await console.close()


async def test_a_digest_of_what_was_written_again_meanwhile_is_not_remembered(tiny: Bench) -> None:
    again, _ = trained_on(tiny.workspace / "checkpoints" / "step_5000" / "model.safetensors", "safetensors")

    class Hashed(LocalHost):
        """Its checkpoint changes while programs run on it that are handed what to read: those that hash."""

        times = 0

        def stream(self, argv: Sequence[str], *, stdin: bool = False) -> AbstractAsyncContextManager[Process]:
            if stdin:
                self.times += 1
                again()
            return super().stream(argv, stdin=stdin)

    source = Hashed("ct200")
    made = with_hosts(tiny, ct200=source)
    with pytest.raises(SourceChanged):
        await fetch(made.console)
    assert source.times >= READINGS
    remembered = tiny.root / "state" / "digests.json"
    assert "step_5000" not in (remembered.read_text() if remembered.exists() else "")


async def test_a_drafter_that_is_not_whole_comes_with_all_that_its_file_holds(tiny: Bench) -> None:
    path = tiny.workspace / "checkpoints" / "step_5000" / "checkpoint.pt"
    path.parent.mkdir()
    saved = model(RAW)
    rest = {name: saved.pop(name) for name in list(saved) if "layers.1" in name or name == "norm.weight"}
    torch.save({"drafter": saved, "more": rest, "optimizer": torch.ones(9999), "best_loss": torch.tensor(0.3)}, path)
    done = await fetch(tiny.console)
    assert (done.brought.cargo.copy, weights(done).read_bytes()) == ("plain", path.read_bytes())
    assert "it can't be made slim" in done.brought.cargo.why


async def test_the_sidecar_lists_the_files_that_stay(tiny: Bench) -> None:
    folder = tiny.workspace / "checkpoints" / "step_4000"
    torch.save(torch.ones(5), folder / "scheduler.pt")
    for path in folder.iterdir():
        os.utime(path, (1, 1))  # they are settled
    done = await fetch(tiny.console)
    said = read_sidecar(Path(done.folder, "checkpoint.pt.slim.json").read_bytes())
    left = {item.name: (item.nbytes, item.why) for item in said.left}
    assert left["scheduler.pt"][0] == (folder / "scheduler.pt").stat().st_size
    assert all(why for _, why in left.values())


async def test_arguments_beside_the_weights_are_read_of_a_slim_copy_as_of_a_full_one(tiny: Bench) -> None:
    folder = tiny.workspace / "checkpoints" / "step_5000"
    folder.mkdir()
    save_file({name: tensor.contiguous().clone() for name, tensor in model(RAW).items()}, folder / "model.safetensors")
    state = {"args": argparse.Namespace(**ARGS), "global_step": 5000, "optimizer": torch.ones(10_000)}
    torch.save(state, folder / "training_state.pt")
    for path in folder.iterdir():
        os.utime(path, (1, 1))  # they are settled
    manifests = []
    for mode in ("slim", "full"):
        config = replace(tiny.console.config, drafter={}, transfer=replace(tiny.console.config.transfer, mode=mode))
        console = Console(config, tiny.console.store, tiny.console.hosts)
        manifests.append(manifest_of(tiny, (await evaluate(console, again=True)).run_id))
        await console.close()
    slim, full = manifests
    assert replace(slim.settings, sources={}) == replace(full.settings, sources={})
    assert slim.settings.sources["block_size"] == full.settings.sources["block_size"]
    assert (slim.request_id, slim.checkpoint.weights_id) == (full.request_id, full.checkpoint.weights_id)
    small = Path(console.evaluation.root, "checkpoints", "slammed5", "step_5000", "training_state.pt")
    assert small.stat().st_size < (folder / "training_state.pt").stat().st_size / 5


@pytest.mark.parametrize("old", [True, False])
async def test_a_whole_copy_that_lies_there_answers_for_a_slim_one(tiny: Bench, old: bool) -> None:
    folder = tiny.workspace / "checkpoints" / "step_4000"
    wanted = str(Path(tiny.console.evaluation.root, "checkpoints", "slammed5", "step_4000"))
    load = Load(tiny.console.training_host, str(folder), ("checkpoint.pt",), 1, 4000, "full")
    await carry(tiny.console, "1", load, wanted)
    record = Path(wanted, ".transfer.json")
    if old:
        said = json.loads(record.read_text())
        del said["files"]["checkpoint.pt"]["plan"]
        record.write_text(json.dumps(said))
    done = await fetch(tiny.console)
    assert (done.folder, done.already_there, done.names) == (wanted, True, ("checkpoint.pt",))
    assert any("holds the whole copy of it already" in sentence for sentence in notices(tiny))
    os.utime(folder / "checkpoint.pt", (1, 1))
    other = await fetch(tiny.console)
    assert (other.folder, other.brought.cargo.copy) == (f"{wanted}-2", "slim")
