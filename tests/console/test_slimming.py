"""What is brought of a checkpoint: what is left, when nothing can be, and that it makes no difference to the result."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from dflash_tui.checkpoints.slim_sidecar import read_sidecar
from dflash_tui.console import events as happened
from dflash_tui.console.acts.evaluate import evaluate
from dflash_tui.console.acts.fetch import Fetched, fetch
from dflash_tui.console.console import Console
from dflash_tui.hosts.base import Completed
from dflash_tui.hosts.local import LocalHost
from dflash_tui.records.codec import loads
from dflash_tui.records.manifest import Manifest
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
