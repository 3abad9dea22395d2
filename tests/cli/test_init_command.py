"""`init` over real hosts: a container behind a hypervisor, an evaluation host, and a person who answers or doesn't."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dflash_tui.config import load_config
from tests.cli.world import Desk
from tests.terminal import Dialogue, dialogue
from tests.workstation import tree


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Where the config of one test goes."""
    return tmp_path / "made" / "config.toml"


def flags(world: Desk) -> dict[str, str]:
    """Everything that `init` would ask."""
    return {
        "--training-host": "pve1",
        "--container": " ".join(world.launcher),
        "--log": "/data/slammed5/train.log",
        "--checkpoints": "/data/slammed5/checkpoints",
        "--arguments": "/data/slammed5/train_args.json",
        "--eval-host": "ct129",
        "--root": os.fspath(world.evaluations),
        "--target": os.fspath(world.lab.target.folder),
        "--prompts": f"{world.lab.root}/prompts.jsonl",
        "--hidden-states": os.fspath(world.lab.hidden_states),
        "--python": sys.executable,
        "--drafter-config": f"{world.lab.root}/drafter.json",
        "--baseline": f"previous=ct129:{world.evaluations}/previous.json",
    }


def told(given: dict[str, str], *without: str) -> list[str]:
    return [word for name, value in given.items() if name not in without for word in (name, value)]


@pytest.fixture
def talk(world: Desk, config: Path) -> Iterator[Any]:
    """Start `init` on a terminal."""
    with_what: list[Any] = []

    def start(*argv: str, home: Path = world.home) -> Dialogue:
        environment = {**world.environment(), "HOME": os.fspath(home)}
        opened = dialogue(world.command("init", "--output", config, *argv), world.home, environment)
        with_what.append(opened)
        return opened.__enter__()

    yield start
    for opened in with_what:
        opened.__exit__(None, None, None)


def test_flags_alone_make_a_whole_config_without_asking_or_looking(world: Desk, config: Path) -> None:
    ran = world.run("init", *told(flags(world)), "--output", config)
    assert ran.code == 0, ran
    assert ran.err == ""
    assert ran.out == f"wrote {config}\nnext: dflash-tui --config {config} check, then: dflash-tui --config {config}\n"
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert os.listdir(config.parent) == ["config.toml"]
    expected = tomllib.loads(world.config_text(evaluation={}))
    made = tomllib.loads(config.read_text())
    assert {key: made["training"][key] for key in expected["training"]} == expected["training"]
    assert made["hosts"] == expected["hosts"]
    assert made["baseline"] == expected["baseline"]
    assert made["drafter"] == expected["drafter"]
    assert made["version"] == 1
    assert made["training"]["name"] == "slammed5"
    assert made["evaluation"]["prompts"] == f"{world.lab.root}/prompts.jsonl"


def test_what_it_wrote_is_what_the_other_commands_work_with(world: Desk, config: Path, apart: Path) -> None:
    assert world.run("init", *told(flags(world)), "--output", config).code == 0
    status = world.json("--config", config, "status", state=apart)
    assert (status["training"], status["host"], status["step"]) == ("slammed5", "ct200", 5329)


def test_yes_takes_what_is_found_and_changes_nothing_on_a_host(world: Desk, config: Path) -> None:
    before = (tree(world.container), tree(world.lab.root))
    there = ("--look", os.fspath(world.lab.root), "--look", os.fspath(Path(sys.prefix)))
    ran = world.run("init", "--yes", "--training-host", "pve1", "--output", config, *there)
    assert ran.code == 0, ran
    assert (tree(world.container), tree(world.lab.root)) == before
    made = load_config(config)
    assert made.training.host == "ct200"
    assert made.hosts["ct200"].container == ("pct", "exec", "200", "--")
    assert made.hosts["ct200"].via == "pve1"
    assert made.training.log == "/data/slammed5/train.log"
    assert made.training.checkpoints == "/data/slammed5/checkpoints"
    assert made.training.arguments == "/data/slammed5/train_args.json"
    assert made.evaluation is not None
    assert made.evaluation.host == "ct129"
    assert made.evaluation.target == os.fspath(world.lab.target.folder)
    assert made.evaluation.prompts == f"{world.lab.root}/prompts.jsonl"
    assert made.evaluation.root == os.fspath(world.lab.root)
    assert made.evaluation.hidden_states == (os.fspath(world.lab.hidden_states),)
    assert made.drafter == {}  # what weights can't tell is never guessed
    assert made.baselines == ()


def test_a_container_is_named_by_its_number_or_its_name(world: Desk, config: Path) -> None:
    for called in ("200", "train"):
        given = told(flags(world), "--container")
        ran = world.run("init", *given, "--container", called, "--output", config, "--replace")
        assert ran.code == 0, ran
        assert load_config(config).hosts["ct200"].container == ("pct", "exec", "200", "--")


def test_no_container_is_called_like_another_host_of_the_user_s(world: Desk, config: Path, tmp_path: Path) -> None:
    """`--eval-host ct200` means what `ssh ct200` means."""
    home = tmp_path / "home"
    shutil.copytree(world.home / ".ssh", home / ".ssh")
    ssh = home / ".ssh" / "config"
    ssh.write_text(ssh.read_text().replace("Host ct129", "Host ct129 ct200"))
    given = {**flags(world), "--eval-host": "ct200", "--baseline": f"previous=ct200:{world.evaluations}/previous.json"}
    command = world.command("init", *told(given), "--output", config)
    environment = {**world.environment(), "HOME": os.fspath(home)}
    subprocess.run(command, check=True, env=environment, stdin=subprocess.DEVNULL)
    made = load_config(config)
    assert (made.training.host, made.evaluation and made.evaluation.host) == ("ct200-2", "ct200")
    assert (made.hosts["ct200"].ssh, made.hosts["ct200-2"].via) == ("ct200", "pve1")
    assert made.baselines[0].host == "ct200"


def test_a_config_that_could_not_be_written_is_told_before_any_question(world: Desk, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "below" / "config.toml"
    ran = world.run("init", "--yes", "--output", path)
    said = f"{path}: {tmp_path}/file is no folder that this user may write to"
    assert said in ran.failed(2)
    assert "looking on" not in ran.err


def test_a_container_that_is_not_there_is_refused_with_those_that_are(world: Desk, config: Path) -> None:
    sentence = world.run("init", *told(flags(world), "--container"), "--container", "300", "--output", config).failed(2)
    assert "--container: found '300', which is not on pve1" in sentence
    assert "pct 200 (train): running; pct 201 (idle): stopped" in sentence
    assert not config.exists()


def test_via_names_the_machine_and_the_training_host_its_container(world: Desk, config: Path) -> None:
    given = told(flags(world), "--training-host")
    ran = world.run("init", *given, "--via", "pve1", "--training-host", "trainer", "--output", config)
    assert ran.code == 0, ran
    made = load_config(config)
    assert made.training.host == "trainer"
    assert made.hosts["trainer"].via == "pve1"


def test_drafters_may_be_evaluated_in_a_container_too(world: Desk, config: Path) -> None:
    given = told(flags(world), "--eval-host")
    there = ("--eval-host", "pve1", "--eval-container", "docker exec -u me box", "--output", config)
    assert world.run("init", *given, *there).code == 0
    made = load_config(config)
    assert made.evaluation is not None
    assert made.evaluation.host == "box"
    assert made.hosts["box"].via == "pve1"
    assert made.hosts["box"].container == ("docker", "exec", "-u", "me", "box")


def test_what_a_launcher_starts_in_a_job_ends_with_it_and_the_config_says_so(world: Desk, config: Path) -> None:
    given = told(flags(world), "--container")
    launcher = "srun --jobid=8123 --overlap"
    assert world.run("init", *given, f"--container={launcher}", "--output", config).code == 0
    assert load_config(config).hosts["job8123"].attached


def test_yes_does_not_guess_between_hosts(world: Desk, config: Path) -> None:
    sentence = world.run("init", "--yes", "--output", config).failed(2)
    assert "--training-host is not given" in sentence
    assert "Found: pve1; ct129; local: this machine; give the flag" in sentence


def test_watch_only_needs_nothing_of_an_evaluation(world: Desk, config: Path) -> None:
    given = [word for name in ("--training-host", "--container", "--log", "--checkpoints")
             for word in (name, flags(world)[name])]  # fmt: skip
    assert world.run("init", *given, "--watch-only", "--output", config).code == 0
    made = load_config(config)
    assert made.evaluation is None
    assert set(made.hosts) == {"pve1", "ct200"}


@pytest.mark.parametrize(
    "flag",
    ["--training-host", "--log", "--checkpoints", "--eval-host", "--root", "--target", "--prompts", "--hidden-states"],
)
def test_without_a_terminal_what_is_missing_is_named_by_its_flag(world: Desk, config: Path, flag: str) -> None:
    sentence = world.run("init", *told(flags(world), flag), "--output", config).failed(2)
    assert f"{flag} " in sentence
    assert "is not given, and there is no terminal to ask on" in sentence
    assert not config.parent.exists()


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("--log", "train.log", "--log: found 'train.log', expected an absolute path"),
        ("--hidden-states", "hs", "--hidden-states: found 'hs', expected an absolute path"),
        ("--look", "mnt", "--look: found 'mnt', expected an absolute path"),
        ("--training-host", "a b", "--training-host: 'a b' is not an SSH target"),
        ("--eval-host", "-oProxyCommand=x", "is not an SSH target"),
        ("--container", "pct exec -- ", "--container: "),
        ("--container", "'", "--container: found"),
        ("--baseline", "previous", "--baseline: found 'previous', expected NAME="),
        ("--baseline", "previous=/no/such.json", "/no/such.json is no file on this machine; one on a host is named"),
    ],
)
def test_a_flag_that_cannot_be_is_one_sentence(world: Desk, config: Path, flag: str, value: str, expected: str) -> None:
    given = told(flags(world), flag)
    sentence = world.run("init", *given, f"{flag}={value}", "--output", config).failed(2)
    assert expected in sentence
    assert not config.exists()


def test_an_existing_config_is_never_overwritten(world: Desk, config: Path) -> None:
    config.parent.mkdir()
    config.write_text("mine\n")
    sentence = world.run("init", *told(flags(world)), "--output", config).failed(2)
    assert f"{config}: there is a config already" in sentence
    assert "--output" in sentence
    assert "--replace" in sentence
    assert config.read_text() == "mine\n"
    answer = world.json("init", *told(flags(world)), "--output", config, "--replace")
    assert Path(answer["kept"]).read_text() == "mine\n"
    assert Path(answer["kept"]).name.startswith("config.toml.bak-")
    assert answer["next"] == [f"dflash-tui --config {config} check", f"dflash-tui --config {config}"]
    assert load_config(config).training.host == "ct200"
    assert len(os.listdir(config.parent)) == 2


def test_a_config_that_is_a_link_keeps_being_one(world: Desk, config: Path, tmp_path: Path) -> None:
    config.parent.mkdir()
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / "dotfiles" / "config.toml").write_text("mine\n")
    config.symlink_to(tmp_path / "dotfiles" / "config.toml")
    assert "there is a config already" in world.run("init", *told(flags(world)), "--output", config).failed(2)
    assert world.run("init", *told(flags(world)), "--output", config, "--replace").code == 0
    assert config.is_symlink()
    assert load_config(config).training.host == "ct200"


def test_a_person_is_asked_and_may_take_what_is_offered(world: Desk, config: Path, talk: Any) -> None:
    person = talk("--look", os.fspath(world.lab.root), "--look", os.fspath(Path(sys.prefix)))
    offers = person.until("alias, user@host:port or local: ")
    assert "Which host does the training run on" in offers
    assert "  1  pve1\n  2  ct129\n  3  local: this machine\n" in offers
    person.type("")  # there are two: none of them is taken unasked
    person.until("expected an answer\na number, alias, user@host:port or local: ")
    person.type("9")
    person.until("found 9, expected a number from 1 to 3\na number, alias, user@host:port or local: ")
    person.type("1")
    offers = person.until("a number [1]: ")
    assert "  1  pct 200 (train): running\n  2  pct 201 (idle): stopped\n  3  pve1 itself: no container\n" in offers
    person.type("")
    offers = person.until("an absolute path [1]: ")
    assert "Which file is the trainer's log on ct200?" in offers
    assert "  1  /data/slammed5/train.log: step 5,329 of 20,000, written " in offers
    person.type("train.log")
    person.until("found 'train.log', expected an absolute path\na number, an absolute path [1]: ")
    person.type("1")
    offers = person.until("an absolute path [1]: ")
    assert "  1  /data/slammed5/checkpoints: 1 checkpoint, newest step 4,000, saved " in offers
    person.type("1")
    person.until("- for none [1]: ")
    person.type("-")
    offers = person.until("alias, user@host:port or local [1]: ")
    assert "Where are drafters evaluated?" in offers
    assert "  1  ct129\n  2  local: this machine\n  3  nowhere: only watch\n" in offers
    person.type("ct129")
    assert f"  1  {world.lab.target.folder}: Qwen3ForCausalLM, " in person.until("an absolute path [1]: ")
    person.type("")
    assert f"  1  {world.lab.root}/prompts.jsonl: 4 prompts, p0 first" in person.until("an absolute path [1]: ")
    person.type("")
    offers = person.until("an absolute path [1]: ")
    assert f"  1  {world.lab.root}: it is there\n" in offers
    assert f"  2  {world.ct129.folder}/dflash: made at the first evaluation\n" in offers
    person.type(os.fspath(world.evaluations))
    assert f"  1  {world.lab.hidden_states}: 3 of 4 prompts" in person.until("an absolute path [1]: ")
    person.type("")
    person.until("a path or a name, - for python3")
    person.type(sys.executable)
    person.until("Which config.json on ct129 describes the drafter")
    person.until("- for none [-]: ")
    person.type(f"{world.lab.root}/drafter.json")
    assert "holds an older result" in person.until("- for none [-]: ")
    person.type("")
    assert person.end() == 0
    program = f"dflash-tui --config {config}"
    assert person.said.endswith(f"wrote {config}\nnext: {program} check, then: {program}\n")
    made = load_config(config)
    assert made.training.host == "ct200"
    assert made.training.arguments == ""
    assert made.evaluation is not None
    assert made.evaluation.root == os.fspath(world.evaluations)
    assert made.evaluation.python == sys.executable
    assert made.drafter == {"config": f"{world.lab.root}/drafter.json"}


def test_a_person_who_leaves_gets_no_config(world: Desk, config: Path, talk: Any) -> None:
    person = talk()
    person.until("local: ")
    person.press("\x04")
    assert person.end() == 2
    assert "the answers ended at --training-host" in person.said
    person = talk()
    person.until("local: ")
    person.press("\x03")
    assert person.end() == 130
    assert not config.exists()


def test_a_host_that_cannot_be_reached_offers_nothing_and_the_questions_go_on(
    world: Desk, config: Path, talk: Any
) -> None:
    person = talk("--watch-only", "--training-host", "nobody@127.0.0.1:1")
    person.until("can't be looked at, so nothing is offered")
    person.until("Which file is the trainer's log on 127.0.0.1?")
    person.until("an absolute path: ")
    person.type("/t/train.log")
    person.until("an absolute path: ")
    person.type("/t/checkpoints")
    person.until("- for none [-]: ")
    person.type("")
    assert person.end() == 0
    made = load_config(config)
    assert made.hosts["127.0.0.1"].ssh == "nobody@127.0.0.1:1"
    assert made.training.log == "/t/train.log"


@pytest.fixture
def stranger(world: Desk, tmp_path: Path) -> Path:
    """The HOME of somebody who has never been on these hosts."""
    home = tmp_path / "stranger"
    shutil.copytree(world.home / ".ssh", home / ".ssh")
    (home / ".ssh" / "known_hosts").unlink()
    config = home / ".ssh" / "config"
    config.write_text(f"Host *\n  UserKnownHostsFile {home}/.ssh/known_hosts\n\n{config.read_text()}")
    return home


def test_an_unknown_host_key_is_shown_and_added_when_a_person_says_so(
    world: Desk, config: Path, talk: Any, stranger: Path
) -> None:
    listed = ["ssh-keygen", "-lf", os.fspath(world.pve.folder / "host_key.pub")]
    fingerprint = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()[1]
    person = talk("--watch-only", "--training-host", "pve1", home=stranger)
    assert fingerprint in person.until("or the fingerprint] ")
    person.type("y")
    assert "pct 200 (train): running" in person.until("a number [1]: ")
    assert world.pve.host_key in (stranger / ".ssh" / "known_hosts").read_text()
    person.press("\x03")
    assert person.end() == 130


def test_an_unknown_host_key_that_nobody_can_be_asked_about_is_a_stop(
    world: Desk, config: Path, stranger: Path
) -> None:
    done = subprocess.run(
        world.command("init", "--yes", "--watch-only", "--training-host", "pve1", "--output", config),
        env={**world.environment(), "HOME": os.fspath(stranger)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "is not known yet; it shows the ssh-ed25519 key SHA256:" in done.stderr
    assert "Run init on a terminal" in done.stderr
    assert not config.exists()
    assert not (stranger / ".ssh" / "known_hosts").exists()


def test_the_app_without_a_config_leads_here(world: Desk, tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    sentence = world.run("--config", missing, "status").failed(2)
    assert sentence == (
        f"dflash-tui: {missing}: no such file; write one with: dflash-tui init (or try everything first with: "
        "dflash-tui demo)"
    )


def test_a_person_goes_back_to_the_question_before(world: Desk, config: Path, talk: Any) -> None:
    person = talk("--watch-only")
    assert "< goes back to the question before" in person.until("alias, user@host:port or local: ")
    person.type("<")
    assert "this is the first question" in person.until("alias, user@host:port or local: ")
    person.type("ct129")
    person.until("looking on ct129 for a training")
    person.until("an absolute path")
    person.type("<")
    person.until("Which host does the training run on")
    person.until("alias, user@host:port or local: ")
    person.type("pve1")
    person.until("a number [1]: ")
    person.type("1")
    person.until("looking on ct200 for a training")
    person.until("an absolute path [1]: ")
    person.type("back")
    person.until("Which container on pve1")
    person.until("a number [1]: ")
    person.type("1")
    again = person.until("an absolute path [1]: ")
    assert "looking on" not in again
    person.type("1")
    person.until("an absolute path [1]: ")
    person.type("1")
    person.until("- for none [1]: ")
    person.type("-")
    assert person.end() == 0
    made = load_config(config)
    assert made.training.host == "ct200"
    assert set(made.hosts) == {"pve1", "ct200"}


def test_what_lies_near_the_root_is_offered_and_nothing_found_is_said(
    world: Desk, config: Path, talk: Any, tmp_path: Path
) -> None:
    root = tmp_path / "srv" / "eval"
    root.mkdir(parents=True)
    shutil.copyfile(world.lab.root / "drafter.json", root.parent / "mine.json")
    shutil.copyfile(world.evaluations / "previous.json", root / "old.json")
    given = flags(world) | {"--root": os.fspath(root), "--log": "/nowhere/train.log"}
    person = talk(*told(given, "--drafter-config", "--baseline", "--prompts"))
    assert "nothing was found there" in person.until("an absolute path: ")
    person.type(given["--prompts"])
    assert f"  1  {root.parent}/mine.json: describes a drafter" in person.until("- for none [-]: ")
    person.type("1")
    assert f"  1  {root}/old.json: a result" in person.until("- for none [-]: ")
    person.type("1")
    assert person.end() == 0
    made = load_config(config)
    assert made.drafter == {"config": f"{root.parent}/mine.json"}
    assert [(item.name, item.host, item.file) for item in made.baselines] == [("previous", "ct129", f"{root}/old.json")]
    assert "ct200:/nowhere/train.log does not exist (--log)" in person.said


def test_a_path_that_does_not_exist_is_said_with_yes_too(world: Desk, config: Path) -> None:
    given = flags(world) | {"--drafter-config": "/nowhere/drafter.json", "--baseline": "old=ct129:/nowhere/old.json"}
    ran = world.run("init", "--yes", *told(given), "--output", config)
    assert ran.code == 0, ran
    assert "ct129:/nowhere/drafter.json does not exist (--drafter-config)" in ran.err
    assert "ct129:/nowhere/old.json does not exist (--baseline old)" in ran.err
    assert ran.err.count("does not exist") == 2


@pytest.mark.parametrize(("flag", "value"), [("--baseline", "foo"), ("--eval-host", "a b")])
def test_a_flag_that_cannot_be_is_refused_before_any_looking(world: Desk, config: Path, flag: str, value: str) -> None:
    ran = world.run("init", "--yes", *told(flags(world) | {flag: value}, "--log"), "--output", config)
    assert ran.code == 2
    assert f"{flag}: " in ran.err
    assert "looking on" not in ran.err
