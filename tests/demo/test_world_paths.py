"""No path leads out of a side of the demo: not by SFTP, not by a command, not through a link."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncssh
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.demo.confine import Folder
from dflash_tui.demo.world import DemoWorld
from dflash_tui.hosts.base import CommandFailed, PermissionRefused
from dflash_tui.hosts.ssh import SshHost

SECRET = b"nobody's business"


@pytest.fixture
def ways_out(world: DemoWorld, tmp_path: Path) -> list[str]:
    """Paths to a file outside of the lab, and to one in the container, by every kind of detour."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(SECRET)
    (world.root / "ct200" / "secret").write_bytes(SECRET)
    lab = world.root / "lab"
    (lab / "direct").symlink_to(outside / "secret")
    (lab / "folder").symlink_to(outside)
    (lab / "relative").symlink_to("../ct200/secret")
    (lab / "chain").symlink_to("folder")
    return [
        f"{outside}/secret",
        f"{lab}/direct",
        f"{lab}/folder/secret",
        f"{lab}/chain/secret",
        f"{lab}/relative",
        f"{lab}/../ct200/secret",
        f"{lab}/eval/../../ct200/secret",
        f"{lab}/eval/../folder/secret",
        f"{world.root}/ct200/secret",
        "../ct200/secret",
        "folder/secret",
        "/proc/self/environ",
    ]


async def test_commands_refuse_what_leads_out(world: DemoWorld, ways_out: list[str]) -> None:
    lab, inside = world.hosts["lab"], f"{world.root}/lab/prompts.jsonl"
    for path in ways_out:
        for argv in (
            ["cat", path],
            ["dd", f"if={path}", "bs=4096"],
            ["dd", f"of={path}", "bs=4096"],
            ["tail", "-c", "+1", path],
            ["head", "-c", "4", path],
            ["sha256sum", path],
            ["openssl", "dgst", "-sha256", "-r", path],
            ["stat", "-L", "-c", "%s", path],
            ["cp", path, f"{world.root}/lab/copy"],
            ["cp", inside, path],
            ["sync", path],
            ["test", "-e", path],
            ["readlink", "-f", path],
            ["ls", path],
            ["df", "-P", path],
        ):
            done = await lab.run(argv, check=False, stdin=b"overwritten")
            assert done.status != 0, argv
            assert SECRET not in done.stdout
            if argv[0] not in ("test",):
                assert "Permission denied" in done.stderr, (argv, done)
    assert all(file.read_bytes() == SECRET for file in world.root.parent.parent.rglob("secret"))
    assert not (world.root / "lab" / "copy").exists()


async def test_entries_behind_a_link_that_leads_out_are_not_touched(world: DemoWorld, ways_out: list[str]) -> None:
    lab, inside = world.hosts["lab"], f"{world.root}/lab/prompts.jsonl"
    behind = [path for path in ways_out if path.endswith("/secret")]
    for path in behind:
        for argv in (
            ["rm", "-f", path],
            ["rm", "-r", os.path.dirname(path) + "/"],
            ["mv", path, f"{world.root}/lab/moved"],
            ["mv", inside, path + ".new"],
            ["ln", path, f"{world.root}/lab/linked"],
            ["ln", inside, path + ".new"],
            ["mkdir", "-p", path + ".new"],
            ["find", os.path.dirname(path) + "/"],
            ["stat", "-c", "%s", path],
        ):
            done = await lab.run(argv, check=False)
            assert done.status != 0, argv
            assert "Permission denied" in done.stderr, (argv, done)
    assert len(list(world.root.parent.parent.rglob("secret"))) == 2
    assert not list(world.root.parent.parent.rglob("secret.new"))


async def test_sftp_refuses_what_leads_out(world: DemoWorld, ways_out: list[str]) -> None:
    lab, inside = world.hosts["lab"], f"{world.root}/lab/prompts.jsonl"
    assert isinstance(lab, SshHost)
    options = {"client_keys": lab.address.client_keys, "known_hosts": lab.address.known_hosts, "username": "demo"}
    async with (
        asyncssh.connect("127.0.0.1", lab.address.port or 0, config=None, **options) as connection,
        connection.start_sftp_client() as sftp,
    ):

        async def opened(path: str, mode: str) -> None:
            async with sftp.open(path, mode):
                pass

        for path in ways_out:
            followed: list[Callable[[], Awaitable[object]]] = [
                lambda path=path: opened(path, "rb"),  # type: ignore[misc]
                lambda path=path: opened(path, "wb"),  # type: ignore[misc]
                lambda path=path: sftp.stat(path),  # type: ignore[misc]
                lambda path=path: sftp.realpath(path),  # type: ignore[misc]
                lambda path=path: sftp.statvfs(path),  # type: ignore[misc]
                lambda path=path: sftp.utime(path, (1, 1)),  # type: ignore[misc]
                lambda path=path: sftp.truncate(path, 0),  # type: ignore[misc]
                lambda path=path: sftp.readdir(path),  # type: ignore[misc]
                lambda path=path: sftp.symlink(path, f"{world.root}/lab/made"),  # type: ignore[misc]
            ]
            entries: list[Callable[[], Awaitable[object]]] = [
                lambda path=path: sftp.lstat(path),  # type: ignore[misc]
                lambda path=path: sftp.remove(path),  # type: ignore[misc]
                lambda path=path: sftp.rename(path, f"{world.root}/lab/made"),  # type: ignore[misc]
                lambda path=path: sftp.posix_rename(path, f"{world.root}/lab/made"),  # type: ignore[misc]
                lambda path=path: sftp.link(path, f"{world.root}/lab/made"),  # type: ignore[misc]
                lambda path=path: sftp.posix_rename(inside, path + ".new"),  # type: ignore[misc]
                lambda path=path: sftp.link(inside, path + ".new"),  # type: ignore[misc]
                lambda path=path: sftp.mkdir(path + ".new"),  # type: ignore[misc]
                lambda path=path: sftp.readlink(path),  # type: ignore[misc]
            ]
            for act in followed + (entries if path.endswith("/secret") else []):
                with pytest.raises(asyncssh.SFTPPermissionDenied):
                    await act()
    assert len([file for file in world.root.parent.parent.rglob("secret") if file.read_bytes() == SECRET]) == 2
    assert not (world.root / "lab" / "made").is_symlink()


async def test_a_link_itself_may_be_seen_and_removed(world: DemoWorld, ways_out: list[str]) -> None:
    lab, link = world.hosts["lab"], f"{world.root}/lab/direct"
    assert (await lab.stat(link, follow=False)).kind == "link"
    with pytest.raises(PermissionRefused):
        await lab.stat(link)
    await lab.run(["rm", link])
    assert not os.path.lexists(link)
    assert Path(ways_out[0]).read_bytes() == SECRET


async def test_the_container_is_as_closed_as_the_lab(world: DemoWorld, ways_out: list[str]) -> None:
    for path in (f"{world.root}/lab/prompts.jsonl", f"{world.root}/ct200/../lab/prompts.jsonl", "/etc/passwd"):
        with pytest.raises(PermissionRefused):
            await world.hosts["ct200"].read(path, 0, 4)
        with pytest.raises(CommandFailed):
            await world.hosts["pve"].run(["pct", "exec", "200", "--", "cat", path])


NAMES = st.sampled_from(["a", "b", "..", ".", "", "out", "in", "loop", "deep", "x y", "...", "/"])


@given(words=st.lists(NAMES, max_size=8), absolute=st.booleans())
def test_whatever_the_path_it_stays_inside(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], absolute: bool
) -> None:
    base = Path(os.path.realpath(tmp_path_factory.mktemp("confined")))
    root = base / "root"
    (root / "a" / "deep").mkdir(parents=True)
    (root / "out").symlink_to("..")
    (root / "a" / "in").symlink_to("../b")
    (root / "loop").symlink_to("loop")
    path = "/".join(words)
    folder = Folder(str(root))
    asked = f"{root}/{path}" if absolute else path
    within = (str(root), f"{root}/")
    leads_to = os.path.realpath(os.path.join(root, asked))
    inside = leads_to == within[0] or leads_to.startswith(within[1])
    try:
        assert folder.resolve(asked) == leads_to
        assert inside
    except PermissionError:
        assert not inside
    try:
        entry = folder.entry(asked)
    except PermissionError:
        return
    holder = os.path.realpath(os.path.dirname(entry))
    assert entry == within[0] or holder == within[0] or holder.startswith(within[1])
