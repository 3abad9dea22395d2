"""What is offered for a config is what really lies on a host, and looking changes nothing there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_tui.console.discovery.containers import list_containers
from dflash_tui.console.discovery.evaluation import find_evaluation, find_roots, hidden_states_of
from dflash_tui.console.discovery.offers import listed
from dflash_tui.console.discovery.searching import MOST_FILES, search
from dflash_tui.console.discovery.training import find_training
from dflash_tui.hosts.container import ContainerHost
from dflash_tui.hosts.local import LocalHost
from tests.cases import known
from tests.harness.world import world
from tests.pct import Pct
from tests.workstation import tree

STEP = "step=%d/20000 loss=2.01 lr=2.90e-04 tok/s=19.5K\n"


@pytest.fixture
def pct(tmp_path: Path) -> Pct:
    return Pct(tmp_path)


@pytest.fixture
def inside(pct: Pct) -> ContainerHost:
    """A container that has busybox and nothing else."""
    return ContainerHost(LocalHost(), pct.prefix(), "ct200")


def put(path: Path, text: str = "x", age: float = 0.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (time.time() - age,) * 2)
    return path


async def test_logs_are_offered_newest_first_with_their_step_and_age(pct: Pct, inside: ContainerHost) -> None:
    put(pct.root / "workspace/old/train.log", STEP % 700, age=86_400 * 3)
    put(pct.root / "workspace/new/train.log", "set-up\n" + STEP % 5329, age=100)
    put(pct.root / "workspace/new/notes.txt", "nothing of a training\n")
    put(pct.root / "workspace/new/empty.log", "")
    before = tree(pct.root)
    found = await find_training(inside)
    assert [offer.value for offer in found.logs] == ["/workspace/new/train.log", "/workspace/old/train.log"]
    assert found.logs[0].why == "step 5,329 of 20,000, written 2 min ago"
    assert found.logs[1].why == "step 700 of 20,000, written 3 d ago"
    assert found.whole
    assert tree(pct.root) == before


@pytest.mark.parametrize(
    ("files", "root", "newest"),
    [
        (["slammed5/checkpoints/step_3000/checkpoint.pt", "slammed5/checkpoints/step_4000/checkpoint.pt"],
         "slammed5/checkpoints", "step 4,000"),
        (["out/checkpoint-500/model.safetensors", "out/checkpoint-500/optimizer.pt"], "out", "step 500"),
        (["out/run7-step1000/training_state.pt", "out/run7-step1000/training_state_rank0.pt"], "out", "step 1,000"),
        (["out/epoch_1_step_2000/model.safetensors"], "out", "step 2,000"),
        (["out/0/model.safetensors", "out/1/model.safetensors"], "out", "1"),
        (["out/draft_step_250/model.safetensors"], "out", "step 250"),
        (["out/state_3/pytorch_model.bin"], "out", "state_3"),
        (["out/iter_0000500/model/.metadata", "out/iter_0000500/optimizer/.metadata"], "out", "step 500"),
        (["out/global_step_60/actor/model_world_size_2_rank_0.pt", "out/global_step_60/data.pt"], "out", "step 60"),
        (["out/epoch_1_step_900/model/consolidated/model.safetensors"], "out", "step 900"),
        (["out/state_3/global_step900/mp_rank_00_model_states.pt"], "out", "state_3"),
        (["out/global_step64/mp_rank_00_model_states.pt"], "out", "step 64"),
        (["out/model_000500.pt", "out/optim_000500_rank0.pt"], "out", "step 500"),
        (["out/global_step64/mp_rank_00_model_states.pt", "out/global_step64/model.safetensors"], "out", "step 64"),
    ],
)  # fmt: skip
async def test_a_folder_of_checkpoints_is_offered_whatever_its_layout(
    pct: Pct, inside: ContainerHost, files: list[str], root: str, newest: str
) -> None:
    for age, name in enumerate(reversed(files)):
        put(pct.root / "data" / name, age=60.0 * age)
    put(pct.root / "models/Qwen3/model.safetensors")  # a model is no checkpoint of a training
    put(pct.root / "models/Qwen3/config.json", "{}")
    (offer,) = (await find_training(inside)).checkpoints
    assert offer.value == f"/data/{root}"
    assert f"newest {newest}, saved " in offer.why


async def test_the_checkpoints_beside_the_log_come_before_newer_ones_elsewhere(pct: Pct, inside: ContainerHost) -> None:
    put(pct.root / "data/mine/train.log", STEP % 10)
    put(pct.root / "data/mine/checkpoints/step_5/checkpoint.pt", age=3600)
    put(pct.root / "data/other/checkpoints/step_9/checkpoint.pt")
    put(pct.root / "data/mine/train_args.json", json.dumps({"block_size": 32}))
    put(pct.root / "data/other/train_args.json", json.dumps({"block_size": 8}))
    found = await find_training(inside)
    assert [offer.value for offer in found.checkpoints] == ["/data/mine/checkpoints", "/data/other/checkpoints"]
    assert [offer.text for offer in found.arguments] == ["/data/mine/train_args.json: block size 32"]


async def test_names_that_would_move_the_cursor_are_not_offered(pct: Pct, inside: ContainerHost) -> None:
    put(pct.root / "data/a\x1b[2J.log", STEP % 1)
    (pct.root / "data" / "b\udcff.log").write_text(STEP % 1)
    put(pct.root / "data/c\nd.log", STEP % 1)
    assert (await find_training(inside)).logs == ()


async def test_a_search_ends_at_its_limit_and_says_so(tmp_path: Path) -> None:
    for number in range(MOST_FILES + 50):
        (tmp_path / f"{number}.log").touch()
    found, whole = await search(LocalHost(), [os.fspath(tmp_path)], ["*.log"])
    assert len(found) == MOST_FILES
    assert not whole


async def test_what_is_deep_or_in_skipped_folders_is_not_searched(tmp_path: Path) -> None:
    put(tmp_path / "a/b/c/d/e/near.log")
    put(tmp_path / "a/b/c/d/e/f/g/far.log")
    put(tmp_path / ".git/hidden.log")
    put(tmp_path / "dev/mine.log", age=9)
    found, whole = await search(LocalHost(), [os.fspath(tmp_path)], ["*.log"])
    assert [item.name for item in found] == ["near.log", "mine.log"]
    assert whole


async def test_what_the_kernel_shows_as_files_is_not_searched() -> None:
    found, _ = await search(LocalHost(), [], ["cmdline", "passwd"], named=["/"])
    assert "/etc/passwd" in [item.path for item in found]
    assert not [item.path for item in found if item.path.startswith(("/proc/", "/sys/", "/dev/"))]


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Path]:
    """A process whose output goes to a file of any name, in a folder that nobody would look in."""
    folder = tmp_path / "somewhere"
    folder.mkdir()
    output = folder / "run7"
    with output.open("w") as file:
        code = f"import sys; print({STEP % 42!r}, flush=True); sys.stdin.read()"
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=file, cwd=folder)
    try:
        while not output.read_text():
            time.sleep(0.01)
        put(folder / "ckpt" / "step_40" / "checkpoint.pt")
        yield folder
    finally:
        child.kill()
        child.communicate()


async def test_a_running_training_is_found_wherever_it_writes(trainer: Path) -> None:
    found = await find_training(LocalHost())
    offers = {offer.value: offer.why for offer in found.logs}
    assert offers[f"{trainer}/run7"].startswith("step 42 of 20,000, written ")
    assert offers[f"{trainer}/run7"].endswith(", open in a process")


async def test_targets_prompts_and_hidden_states_are_offered_and_drafters_are_no_targets(tmp_path: Path) -> None:
    lab = world(tmp_path / "lab")
    shutil.copytree(lab.case.folder, tmp_path / "lab" / "drafter")
    shutil.copyfile(known("cases/story/eval_results.json"), tmp_path / "lab" / "eval_results.json")
    put(tmp_path / "lab" / "lines.jsonl", '{"step": 1}\n')
    before = tree(tmp_path)
    found = await find_evaluation(LocalHost(), [os.fspath(tmp_path)])
    mine = [offer for offer in found.targets if offer.value.startswith(os.fspath(tmp_path))]
    assert [offer.value for offer in mine] == [os.fspath(lab.target.folder)]
    assert mine[0].why.startswith("Qwen3ForCausalLM, ")
    assert f"{tmp_path}/lab/drafter/config.json" in [offer.value for offer in found.drafters]
    prompts = f"{tmp_path}/lab/prompts.jsonl"
    assert f"{prompts}: 4 prompts, p0 first" in [offer.text for offer in found.prompts]
    assert f"{tmp_path}/lab/lines.jsonl" not in found.prompt_ids
    assert [offer.text for offer in hidden_states_of(found, prompts)] == [f"{lab.hidden_states}: 3 of 4 prompts"]
    assert f"{tmp_path}/lab/eval_results.json" in [offer.value for offer in found.results]
    assert tree(tmp_path) == before


async def test_what_a_host_says_stays_in_one_line_of_a_length(tmp_path: Path) -> None:
    put(tmp_path / "prompts.jsonl", json.dumps({"id": "a\n  9  /etc/passwd" + "x" * 500, "prompt": "p"}) + "\n")
    found = await find_evaluation(LocalHost(), [os.fspath(tmp_path)])
    (offer,) = [offer for offer in found.prompts if offer.value == f"{tmp_path}/prompts.jsonl"]
    assert "\n" not in offer.text
    assert len(offer.text) < len(offer.value) + 130


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"architectures": "Qwen3ForCausalLM"}', '{"architectures": []}', "[" * 100_000]
)
async def test_a_config_that_describes_no_language_model_is_no_target(tmp_path: Path, text: str) -> None:
    put(tmp_path / "model" / "config.json", text)
    put(tmp_path / "model" / "model.safetensors")
    found = await find_evaluation(LocalHost(), [os.fspath(tmp_path)])
    assert not [offer for offer in found.targets if offer.value.startswith(os.fspath(tmp_path))]


async def test_roots_are_offered_where_this_user_may_write(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    found = await find_roots(LocalHost(), os.fspath(home), f"{tmp_path}/prompts.jsonl")
    assert [offer.text for offer in found] == [
        f"{tmp_path}: it is there",
        f"{home}/dflash: made at the first evaluation",
    ]
    # Nobody may write there, root included.
    assert await find_roots(LocalHost(), "", "/proc/self/prompts.jsonl") == ()
    assert list(home.iterdir()) == []


async def test_pythons_that_have_torch_are_offered_with_its_version(tmp_path: Path) -> None:
    home = tmp_path / "venv" / "bin"
    home.mkdir(parents=True)
    (home / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (home / "python").chmod(0o755)
    without = put(tmp_path / "bare" / "bin" / "python", "#!/bin/sh\necho '[[3, 12], null]'\n")
    without.chmod(0o755)
    slow = put(tmp_path / "broken" / "bin" / "python", "#!/bin/sh\nexit 3\n")
    slow.chmod(0o755)
    found = await find_evaluation(LocalHost(), [os.fspath(tmp_path)])
    offers = {offer.value: offer.why for offer in found.pythons}
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert offers[f"{home}/python"].startswith(f"Python {version} with torch ")
    assert not {f"{tmp_path}/bare/bin/python", f"{tmp_path}/broken/bin/python"} & set(offers)


LISTS = {
    "pct": ("VMID       Status     Lock         Name\\n200        running                 train\\n"
            "201        stopped    backup       idle\\n"),
    "docker": "train|running|nvcr.io/nvidia/pytorch:25.10-py3\\nold|exited|debian\\n",
    "podman": "box|running|localhost/train:1\\n",
    "incus": "gpu1,RUNNING\\nweb,STOPPED\\n",
    "kubectl": "drafter-0   1/1     Running     0          3d\\ndata-prep   0/1     Completed   0          4d\\n",
    "squeue": "8123|RUNNING|dflash\\n8200|PENDING|next\\n",
}  # fmt: skip


async def test_containers_are_listed_by_every_tool_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tool, output in LISTS.items():
        put(tmp_path / tool, f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nprintf "{output}"\n').chmod(0o755)
    put(tmp_path / "lxc", "#!/bin/sh\necho 'no access' >&2; exit 1\n").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = await list_containers(LocalHost())
    running = {item.text: " ".join(item.prefix) for item in found if item.running}
    assert running == {
        "pct 200 (train): running": "pct exec 200 --",
        "docker train (nvcr.io/nvidia/pytorch:25.10-py3): running": "docker exec train",
        "podman box (localhost/train:1): running": "podman exec box",
        "incus gpu1: running": "incus exec gpu1 --",
        "kubectl drafter-0: running": "kubectl exec drafter-0 --",
        "squeue 8123 (dflash): running": "srun --jobid=8123 --overlap",
    }
    assert [item.text for item in found if not item.running] == [
        "pct 201 (idle): stopped",
        "docker old (debian): exited",
        "incus web: stopped",
        "kubectl data-prep: completed",
        "squeue 8200 (next): pending",
    ]
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[0] == "list"
    assert all(line.split()[0] in ("list", "ps", "get", "-h") for line in asked)  # nothing but questions


async def test_a_host_without_any_tool_lists_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("sh", "id"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    assert await list_containers(LocalHost()) == ()


def test_a_sentence_names_a_few_of_many_containers() -> None:
    texts = [f"pct {number}: stopped" for number in range(10_000)]
    assert listed(texts[:2]) == "pct 0: stopped; pct 1: stopped"
    assert listed(texts).endswith("pct 11: stopped; and 9,988 more")
    assert listed([]) == ""
