"""`dflash-tui check` over real hosts: a sound set-up passes, and each broken one is told by one sentence."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.world import Desk
from tests.sshd import need, running_sshd
from tests.workstation import tree

Place = tuple[str, str]


@dataclass(frozen=True)
class Found:
    """What a check answered."""

    code: int
    data: dict[str, Any]
    err: str

    def places(self, state: str) -> list[Place]:
        """Group and name of the items in a state."""
        return [(item["group"], item["name"]) for item in self.data["items"] if item["state"] == state]

    def sentence(self, group: str, name: str) -> str:
        """What was said of one item."""
        (found,) = [i["sentence"] for i in self.data["items"] if (i["group"], i["name"]) == (group, name)]
        return str(found)

    def only(self, group: str, name: str) -> str:
        """The sentence of the only thing that failed."""
        assert self.code == 1, self
        assert self.places("fail") == [(group, name)], self.failures
        assert self.data["failed"] == 1
        return self.sentence(group, name)

    @property
    def failures(self) -> list[dict[str, str]]:
        return [item for item in self.data["items"] if item["state"] == "fail"]


def check(desk: Desk, config: Path | None = None) -> Found:
    """`check --json`, with a config of another name where one is given."""
    options = ("--config", config) if config is not None else ()
    ran = desk.run(*options, "check", "--json")
    assert "Traceback" not in ran.err, ran
    return Found(ran.code, json.loads(ran.out), ran.err)


@pytest.fixture
def mine(world: Desk, tmp_path: Path) -> Desk:
    """The same hosts from a HOME that one test may spoil."""
    home = tmp_path / "home"
    shutil.copytree(world.home, home)
    return replace(world, home=home)


@pytest.fixture
def spoiled(world: Desk) -> Iterator[Path]:
    """A folder in the container that one test may fill; gone afterwards. Its name there is /data/spoiled."""
    folder = world.container / "data" / "spoiled"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A small filesystem of its own at a folder."""
    need(os.geteuid() == 0 and shutil.which("mount") is not None, "mount, which needs root,")
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def stand_in(desk: Desk, name: str, text: str) -> str:
    """A program on the evaluation host."""
    path = desk.root / "tmp" / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return os.fspath(path)


# -- what works -----------------------------------------------------------------------------------------------------


def test_a_sound_set_up_passes_and_leaves_nothing_but_the_harness_file(mine: Desk) -> None:
    folders = (mine.container, mine.lab.root, mine.home, mine.pve.folder)
    before = [tree(folder) for folder in folders]
    listed = [sorted(str(path) for path in folder.rglob("*")) for folder in folders]
    found = check(mine)
    assert found.code == 0, found.failures
    assert found.data["failed"] == 0
    assert found.places("fail") == found.places("not tried") == []
    groups = [item["group"] for item in found.data["items"]]
    assert list(dict.fromkeys(groups)) == ["config", "workstation", "hosts", "training", "evaluation", "baselines"]
    names = {(item["group"], item["name"]) for item in found.data["items"]}
    evaluation = "python torch capture root links space filesystem drafter target prompts memory load".split()
    assert {
        *(("workstation", name) for name in ("state", "terminal", "known_hosts", "ssh agent")),
        *(("hosts", name) for name in ("pve1", "pve1 clock", "ct200", "ct200 clock", "ct129", "ct129 clock")),
        *(("training", name) for name in ("log", "checkpoints", "arguments", "gpus")),
        *(("evaluation", name) for name in (*evaluation, "detached work", "hidden states")),
        ("baselines", "previous"),
    } <= names
    for folder, files, paths in zip(folders, before, listed, strict=True):
        after = {name: value for name, value in tree(folder).items() if "/.dflash/harness-" not in name}
        assert after == {name: value for name, value in files.items() if "/.dflash/harness-" not in name}
        new = set(map(str, folder.rglob("*"))) - set(paths)
        assert all(Path(path).name == ".dflash" or Path(path).name.startswith("harness-") for path in new)
    assert "ct129" in found.err
    assert found.data["seconds"] < 60


def test_the_text_says_the_same_with_a_mark_for_each_state(world: Desk) -> None:
    config = world.other_config("text.toml", training={"log": "/data/slammed5/train.lgo"})
    ran = world.run("--config", config, "check")
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert lines[0] == "config"
    (wrong,) = [line for line in lines if line.startswith("  ✖")]
    assert wrong.startswith("  ✖ log: ct200:/data/slammed5/train.lgo does not exist; expected the trainer's log")
    assert any(line.startswith("  ✓ pve1: ") for line in lines)
    assert lines[-1].startswith("1 thing failed, ")


def test_a_config_that_only_watches_is_checked_without_evaluation(world: Desk) -> None:
    found = check(world, world.other_config("watch.toml", evaluation={}, drafter={}, baseline={}, hosts__ct129={}))
    assert found.code == 0
    assert {item["group"] for item in found.data["items"]} == {"config", "workstation", "hosts", "training"}


# -- hosts ----------------------------------------------------------------------------------------------------------


def test_a_wrong_port(mine: Desk) -> None:
    path = mine.home / ".ssh" / "config"
    path.write_text(path.read_text().replace(f"Port {mine.pve.port}", "Port 1"))
    found = check(mine)
    sentence = found.only("hosts", "pve1")
    assert "Connection refused; check host and port of the target (`ssh pve1`), and that sshd runs there" in sentence
    skipped = found.places("not tried")
    assert ("hosts", "ct200") in skipped
    assert ("training", "log") in skipped
    assert found.sentence("training", "checkpoints") == "not tried: pve1 can't be reached"
    assert ("evaluation", "target") in found.places("ok")
    assert ("evaluation", "drafter") in skipped


def test_a_name_that_means_nothing(world: Desk) -> None:
    found = check(world, world.other_config("name.toml", hosts__ct129={"ssh": "no-such-host.invalid"}))
    assert "check the name no-such-host.invalid in the target" in found.only("hosts", "ct129")
    assert found.sentence("evaluation", "python") == "not tried: ct129 can't be reached"
    assert found.sentence("baselines", "previous") == "not tried: ct129 can't be reached"


def test_an_unknown_host_key(mine: Desk) -> None:
    known = mine.home / ".ssh" / "known_hosts"
    known.write_text("".join(line for line in known.read_text().splitlines(True) if mine.ct129.host_key not in line))
    sentence = check(mine).only("hosts", "ct129 host key")
    assert "not in known_hosts; it offered ssh-ed25519 SHA256:" in sentence
    assert "run `dflash-tui trust ct129 --fingerprint SHA256:" in sentence


def test_a_changed_host_key(mine: Desk) -> None:
    known = mine.home / ".ssh" / "known_hosts"
    known.write_text(known.read_text().replace(mine.ct129.host_key, mine.pve.host_key))
    sentence = check(mine).only("hosts", "ct129 host key")
    assert "CHANGED" in sentence
    assert f"run `ssh-keygen -R '[127.0.0.1]:{mine.ct129.port}'`" in sentence


def test_a_refused_login(mine: Desk) -> None:
    shutil.copyfile(mine.pve.folder / "client_key", mine.home / ".ssh" / "id_ct129")
    sentence = check(mine).only("hosts", "ct129 login")
    assert "the login was refused" in sentence
    assert "expected a key that the host accepts, in the SSH agent or named by IdentityFile" in sentence


def test_a_server_that_never_speaks(world: Desk) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        found = check(world, world.other_config("silent.toml", hosts__ct129={"ssh": f"root@127.0.0.1:{port}"}))
    assert "ct129" in found.only("hosts", "ct129")
    assert found.data["seconds"] < 60


def test_a_server_without_sftp_is_a_warning(mine: Desk, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with running_sshd(tmp_path / "plain", "") as plain:
        ssh = mine.home / ".ssh"
        with (ssh / "config").open("a") as config, (ssh / "known_hosts").open("a") as known:
            config.write(
                f"Host plain\n  HostName 127.0.0.1\n  Port {plain.port}\n  IdentityFile {plain.folder}/client_key\n"
            )
            known.write(f"[127.0.0.1]:{plain.port} {plain.host_key}\n")
        found = check(mine, mine.other_config("plain.toml", hosts__ct129={"ssh": "plain"}))
    assert found.code == 0, found.failures
    assert "offers no SFTP" in found.sentence("hosts", "ct129 files")


def test_a_stopped_container(world: Desk) -> None:
    state = world.container.with_name("rootfs.state")
    state.write_text("stopped")
    try:
        found = check(world)
    finally:
        state.write_text("running")
    assert "is stopped; start it with `" in found.only("hosts", "ct200")
    assert found.sentence("training", "log") == "not tried: ct200 can't be reached"


def test_a_container_that_does_not_exist(world: Desk) -> None:
    launcher = [word.replace("200", "999") for word in world.launcher]
    found = check(world, world.other_config("gone.toml", hosts__ct200={"container": launcher}))
    sentence = found.only("hosts", "ct200")
    assert "does not exist on that node" in sentence
    assert "list`" in sentence


def test_a_launcher_that_is_not_there(world: Desk) -> None:
    found = check(world, world.other_config("tool.toml", hosts__ct200={"container": ["pctt", "exec", "200", "--"]}))
    sentence = found.only("hosts", "ct200")
    assert "pve1 has no program 'pctt'" in sentence
    assert "give its full path" in sentence


def test_a_clock_that_is_wrong_is_a_warning(world: Desk) -> None:
    date = world.container / "bin" / "date"
    date.unlink()
    date.write_text(
        '#!/bin/sh\nif [ "$1" = +%z ]; then exec busybox date +%z; fi\necho $(($(busybox date +%s) - 7200)).5\n'
    )
    date.chmod(0o755)
    try:
        found = check(world)
    finally:
        date.unlink()
        date.symlink_to("busybox")
    assert found.code == 0, found.failures
    sentence = found.sentence("hosts", "ct200 clock")
    assert ("hosts", "ct200 clock") in found.places("warn")
    assert "s behind this machine's, expected under 60 s" in sentence
    assert "set the time" in sentence


def test_a_host_that_may_only_be_hopped_through_is_no_place_to_work(world: Desk) -> None:
    found = check(world, world.other_config("jump.toml", hosts__ct129={"jump_only": True}))
    sentence = found.only("config", "config")
    assert "JUMP_ONLY" in sentence
    assert "name another host" in sentence
    assert found.sentence("hosts", "hosts") == "not tried: the config can't be used"


def test_a_mistake_in_the_config(world: Desk) -> None:
    found = check(world, world.other_config("typo.toml", evaluation={"blok_size": 3}))
    assert "evaluation.blok_size: unknown key; did you mean 'block_size'?" in found.only("config", "config")


# -- the training ---------------------------------------------------------------------------------------------------


def test_a_log_that_is_called_otherwise(world: Desk) -> None:
    found = check(world, world.other_config("log.toml", training={"log": "/data/slamed5/train.log"}))
    assert found.only("training", "log") == (
        "ct200:/data/slamed5/train.log does not exist; expected the trainer's log (training.log); did you mean "
        "/data/slammed5/train.log?"
    )


def test_a_log_in_which_no_step_is_said(world: Desk, spoiled: Path) -> None:
    (spoiled / "train.log").write_text("the quick brown fox\n" * 40)
    found = check(world, world.other_config("dialect.toml", training={"log": "/data/spoiled/train.log"}))
    sentence = found.only("training", "log")
    assert "no step is recognised in the last 40 lines of ct200:/data/spoiled/train.log" in sentence
    assert "found `the quick brown fox`, expected lines such as `step 1200/20000 loss 2.01`" in sentence
    assert "set training.log" in sentence


def test_a_log_of_a_training_that_has_just_begun_is_a_warning(world: Desk, spoiled: Path) -> None:
    (spoiled / "train.log").write_text("loading the model\n")
    found = check(world, world.other_config("new.toml", training={"log": "/data/spoiled/train.log"}))
    assert found.code == 0
    assert ("training", "log") in found.places("warn")


def test_a_checkpoints_folder_that_is_empty_is_a_warning(world: Desk, spoiled: Path) -> None:
    found = check(world, world.other_config("empty.toml", training={"checkpoints": "/data/spoiled"}))
    assert found.code == 0, found.failures
    assert ("training", "checkpoints") in found.places("warn")
    assert "/data/spoiled is empty; eval and fetch wait for the first" in found.sentence("training", "checkpoints")
    assert found.sentence("evaluation", "drafter") == "not tried: there is no complete checkpoint to look at"


def test_a_folder_that_holds_something_else_than_checkpoints(world: Desk, spoiled: Path) -> None:
    (spoiled / "photos").mkdir()
    (spoiled / "notes.txt").write_text("x")
    found = check(world, world.other_config("strange.toml", training={"checkpoints": "/data/spoiled"}))
    sentence = found.only("training", "checkpoints")
    assert "holds no checkpoint; found notes.txt, photos, expected step_N, checkpoint-N" in sentence


def test_a_half_written_newest_checkpoint_is_a_warning(world: Desk) -> None:
    whole = world.save(10, "half")
    newest = world.save(20, "half")
    newest.write_bytes(newest.read_bytes()[:5000])
    try:
        found = check(world, world.other_config("half.toml", training={"checkpoints": "/data/half/checkpoints"}))
    finally:
        shutil.rmtree(whole.parents[2])
    assert found.code == 0, found.failures
    sentence = found.sentence("training", "newest checkpoint")
    assert "step_20" in sentence
    assert "step 10 is used until it is whole" in sentence


def test_arguments_that_are_no_json(world: Desk, spoiled: Path) -> None:
    (spoiled / "args.json").write_text("block_size: 32\n")
    found = check(world, world.other_config("args.toml", training={"arguments": "/data/spoiled/args.json"}))
    assert "ct200:/data/spoiled/args.json: not a JSON text" in found.only("training", "arguments")


# -- the evaluation host --------------------------------------------------------------------------------------------


def test_a_root_that_is_read_only(world: Desk, tmp_path: Path) -> None:
    with mounted(tmp_path / "readonly", "size=200m") as folder:
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        found = check(world, world.other_config("ro.toml", evaluation={"root": os.fspath(folder)}, baseline={}))
    assert found.only("evaluation", "root") == (
        f"ct129:{folder} can't be written (Read-only file system), expected a folder for runs: let its owner give this "
        "user write permission, or set evaluation.root to a folder of your own"
    )
    assert found.sentence("evaluation", "target") == f"not tried: the harness can't be kept in {folder}"


def test_a_disk_without_room(world: Desk, tmp_path: Path) -> None:
    with mounted(tmp_path / "full", "size=1m") as folder:
        with (folder / "filler").open("wb") as file:
            file.write(bytes(1 << 20))
        found = check(world, world.other_config("full.toml", evaluation={"root": os.fspath(folder)}, baseline={}))
    sentence = found.only("evaluation", "space")
    assert f"ct129:{folder}: 0 B free, 68.46 MB needed for step_4000 and a run's records" in sentence
    assert "remove what is not needed there" in sentence


def test_runs_on_another_filesystem_are_a_warning(world: Desk, tmp_path: Path) -> None:
    root = tmp_path / "eval"
    (root / "checkpoints").mkdir(parents=True)
    with mounted(root / "runs", "size=100m"):
        found = check(world, world.other_config("fs.toml", evaluation={"root": os.fspath(root)}, baseline={}))
        assert list((root / "runs").iterdir()) == list((root / "checkpoints").iterdir()) == []
    assert found.code == 0, found.failures
    sentence = found.sentence("evaluation", "links")
    assert f"ct129: no hard link from {root}/checkpoints to {root}/runs" in sentence
    assert "each run copies its checkpoint then" in sentence


def test_a_root_that_is_still_to_be_made_is_well(world: Desk, tmp_path: Path) -> None:
    root = tmp_path / "later" / "eval"
    found = check(world, world.other_config("later.toml", evaluation={"root": os.fspath(root)}, baseline={}))
    assert found.code == 0, found.failures
    assert f"{root} does not exist yet and can be made in {tmp_path}" in found.sentence("evaluation", "root")


def test_a_python_without_torch(world: Desk) -> None:
    python = stand_in(world, "bare", f'exec {sys.executable} -I -S "$@"')
    found = check(world, world.other_config("bare.toml", evaluation={"python": python}))
    sentence = found.only("evaluation", "torch")
    assert "has no torch, expected one: install it with `" in sentence
    assert "pip install torch" in sentence
    assert ("evaluation", "target") in found.places("ok")


def test_a_python_whose_torch_is_broken(world: Desk) -> None:
    folder = world.root / "tmp" / "broken"
    (folder / "torch").mkdir(parents=True, exist_ok=True)
    (folder / "torch" / "__init__.py").write_text("raise ImportError('libcudart.so.12: cannot open shared object')\n")
    python = stand_in(world, "cracked", f'PYTHONPATH={folder} exec {sys.executable} "$@"')
    found = check(world, world.other_config("cracked.toml", evaluation={"python": python}))
    sentence = found.only("evaluation", "torch")
    assert "can't be imported" in sentence
    assert "ImportError: libcudart.so.12: cannot open shared object" in sentence


def test_a_python_that_is_too_old(world: Desk) -> None:
    python = stand_in(world, "old", "echo dflash 3.8.10 /usr/bin/python3.8")
    found = check(world, world.other_config("old.toml", evaluation={"python": python}))
    assert found.only("evaluation", "python") == (
        f"ct129: {python} is Python 3.8.10 (/usr/bin/python3.8), expected 3.10 or newer with torch: set "
        "evaluation.python to one"
    )
    assert found.sentence("evaluation", "prompts") == f"not tried: {python} can't run the harness"


def test_a_python_that_is_not_there(world: Desk) -> None:
    found = check(world, world.other_config("none.toml", evaluation={"python": "/nowhere/python3"}))
    assert "/nowhere/python3 can't be run" in found.only("evaluation", "python")


def test_a_target_without_its_config(world: Desk) -> None:
    target = world.root / "tmp" / "headless"
    shutil.copytree(world.lab.target.folder, target, dirs_exist_ok=True)
    (target / "config.json").unlink()
    found = check(world, world.other_config("target.toml", evaluation={"target": os.fspath(target)}))
    sentence = found.only("evaluation", "target")
    assert "config.json" in sentence
    assert "expected evaluation.target to be a whole Hugging Face folder" in sentence


def test_a_target_that_is_called_otherwise(world: Desk) -> None:
    found = check(world, world.other_config("near.toml", evaluation={"target": f"{world.lab.target.folder}s"}))
    assert f"did you mean {world.lab.target.folder}?" in found.only("evaluation", "target")


def test_prompts_of_which_two_have_one_id(world: Desk) -> None:
    prompts = world.root / "tmp" / "twice.jsonl"
    prompts.write_text('{"id": "a", "prompt": "x"}\n{"id": "a", "prompt": "y"}\n')
    found = check(world, world.other_config("twice.toml", evaluation={"prompts": os.fspath(prompts)}))
    sentence = found.only("evaluation", "prompts")
    assert f"{prompts}: prompt id 'a' appears twice; ids name files and must differ" in sentence
    assert found.sentence("evaluation", "hidden states") == "not tried: the prompts can't be read"


def test_hidden_states_of_other_layers(world: Desk) -> None:
    described = json.loads((world.lab.root / "drafter.json").read_text())
    text = json.dumps(described).replace("[1, 3, 5]", "[0, 2, 4]")
    assert text != json.dumps(described)
    other = world.root / "tmp" / "taps.json"
    other.write_text(text)
    found = check(world, world.other_config("taps.toml", drafter={"config": os.fspath(other)}))
    sentence = found.only("evaluation", "hidden states")
    assert "0 of 4 prompts can be used, 3 refused, first" in sentence
    assert "the drafter's taps" in sentence
    assert "dflash-tui capture" in sentence


def test_no_hidden_states_at_all(world: Desk) -> None:
    found = check(world, world.other_config("hs.toml", evaluation={"hidden_states": "/nowhere/hs"}))
    assert "make them with: dflash-tui capture" in found.only("evaluation", "hidden states")


def test_settings_that_nothing_gives(world: Desk) -> None:
    found = check(world, world.other_config("settings.toml", drafter={}))
    sentence = found.only("evaluation", "drafter")
    assert "ct200" in sentence
    assert "rope_theta" in sentence
    assert found.sentence("evaluation", "memory").startswith("not tried: ")


def test_a_drafters_config_that_is_not_there(world: Desk) -> None:
    found = check(world, world.other_config("dc.toml", drafter={"config": f"{world.lab.root}/drafterr.json"}))
    assert f"did you mean {world.lab.root}/drafter.json?" in found.only("evaluation", "drafter")


# -- baselines and the user's own harness ---------------------------------------------------------------------------


def test_a_baseline_that_is_no_result(world: Desk) -> None:
    path = os.fspath(world.lab.root / "drafter.json")
    found = check(world, world.other_config("base.toml", baseline={"file": path}))
    sentence = found.only("baselines", "previous")
    assert f"ct129:{path}: not a result that can be read: found keys" in sentence
    assert "(baseline.previous.file)" in sentence


def test_a_baseline_drafter_that_is_not_there(world: Desk) -> None:
    baseline = {"name": "zlab", "drafter": "/nowhere/drafter", "file": ""}
    text = world.config_text(baseline=baseline).replace('file = ""\n', "")
    config = world.root / "drafter.toml"
    config.write_text(text)
    found = check(world, config)
    assert "ct129:/nowhere/drafter does not exist; expected a drafter" in found.only("baselines", "zlab")


def test_a_harness_script_that_is_missing(world: Desk) -> None:
    script = world.lab.root / "run_eval.py"
    script.write_text("print('hello')\n")
    try:
        command = [sys.executable, os.fspath(world.lab.root / "run_evals.py"), "{checkpoint}"]
        found = check(world, world.other_config("harness.toml", harness={"command": command}))
        assert found.only("harness", "script") == (
            f"ct129:{command[1]} does not exist; expected your script (harness.command); did you mean {script}?"
        )
        command[1] = os.fspath(script)
        assert check(world, world.other_config("harness.toml", harness={"command": command})).code == 0
    finally:
        script.unlink()


def test_a_placeholder_that_means_nothing(world: Desk) -> None:
    found = check(world, world.other_config("place.toml", harness={"command": ["/bin/echo", "{chekpoint}"]}))
    assert "{chekpoint}" in found.only("harness", "command")
    assert "did you mean {checkpoint}?" in found.sentence("harness", "command")


def test_a_program_that_can_not_be_run(world: Desk) -> None:
    found = check(world, world.other_config("program.toml", harness={"command": ["/nowhere/eval", "{checkpoint}"]}))
    assert "/nowhere/eval: no such program that can be run" in found.only("harness", "command")


# -- the workstation ------------------------------------------------------------------------------------------------


def test_a_state_folder_that_can_not_be_written(world: Desk, tmp_path: Path) -> None:
    with mounted(tmp_path / "state", "size=1m") as folder:
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        ran = world.run("check", "--json", state=folder)
    found = Found(ran.code, json.loads(ran.out), ran.err)
    sentence = found.only("workstation", "state")
    assert f"{folder} can't be written (Read-only file system)" in sentence
    assert "--state" in sentence
