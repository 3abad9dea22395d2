"""Hosts that can't be reached, each told by one sentence: what was found, expected, and what to do."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

from tests.cli.checked import check
from tests.cli.world import Desk
from tests.sshd import running_sshd


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


def test_a_launcher_with_a_shell_at_its_end(world: Desk) -> None:
    launcher = [*world.launcher, "sh", "-c"]
    found = check(world, world.other_config("shell.toml", hosts__ct200={"container": launcher}))
    sentence = found.only("hosts", "ct200")
    assert "does not start a command as it is: `echo here` printed '" in sentence
    assert "without a shell such as `sh -c` of its own" in sentence
    assert found.sentence("training", "log") == "not tried: ct200 can't be reached"


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


def test_a_gate_is_only_hopped_through_and_what_lies_behind_a_closed_one_is_not_tried(world: Desk) -> None:
    pve1 = {"ssh": "pve1", "jump": "gate"}
    gate = {"ssh": "ct129", "jump_only": True}
    found = check(world, world.other_config("gate.toml", hosts__gate=gate, hosts__pve1=pve1))
    assert found.code == 0, found.failures
    assert f"by way of 127.0.0.1:{world.ct129.port}" in found.sentence("hosts", "pve1")
    names = [name for group, name in found.places("ok") if group == "hosts"]
    assert "gate" in names
    assert "gate clock" not in names
    gate["ssh"] = "root@127.0.0.1:1"
    found = check(world, world.other_config("gate.toml", hosts__gate=gate, hosts__pve1=pve1))
    assert "Connection refused" in found.only("hosts", "gate")
    assert found.sentence("hosts", "pve1") == found.sentence("training", "log") == "not tried: gate can't be reached"


def test_what_ends_with_its_launcher_is_a_warning(world: Desk) -> None:
    hosts = {"hosts__box": {"via": "ct129", "container": ["env"], "attached": True}}
    found = check(world, world.other_config("held.toml", evaluation={"host": "box"}, **hosts))
    assert ("evaluation", "detached work") in found.places("warn"), found.failures
    assert "an evaluation is held open" in found.sentence("evaluation", "detached work")


def test_a_login_shell_that_prints(mine: Desk) -> None:
    greeting = mine.ct129.folder / ".bashrc"
    greeting.write_text("echo Welcome to ct129\n")
    try:
        sentence = check(mine).only("hosts", "ct129 shell")
    finally:
        greeting.unlink()  # the host is the other tests' too
    assert "the login shell of ct129 prints `Welcome to ct129` before each command's own output" in sentence
    assert "let its ~/.bashrc (or the like) print only where somebody reads" in sentence
