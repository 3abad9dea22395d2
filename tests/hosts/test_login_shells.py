"""Whatever the login shell of a user is, and whatever it complains of, commands arrive and their answers are theirs."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_tui.hosts import commands
from dflash_tui.hosts.base import FileMissing, HostError
from dflash_tui.hosts.running import shell_line
from dflash_tui.hosts.ssh import SshHost
from tests.sshd import Sshd

WORDS = st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8), max_size=4)


@settings(deadline=None, max_examples=60)
@given(words=WORDS | st.lists(st.text("a'\"\\\n!0%$`; é", max_size=8), max_size=4))
def test_a_line_is_read_alike_by_every_shell(words: list[str]) -> None:
    line = shell_line(["printf", "%s\\0", *words])
    # csh ends a quoted text at a newline and looks for history at "!"; fish takes \\ and \' for one character.
    assert b"\n" not in line
    assert b"!" not in line
    assert not re.search(rb"\\[\\']", line)
    done = subprocess.run(["sh", "-c", line], stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"".join(word.encode() + b"\0" for word in words or [""])


def test_a_name_that_is_not_utf8_arrives_beside_a_newline() -> None:
    done = subprocess.run(
        ["sh", "-c", shell_line(["printf", "%s", "B\udcfcro\n!"])], stdout=subprocess.PIPE, check=True
    )
    assert done.stdout == b"B\xfcro\n!"


@pytest.mark.parametrize("noise", ["Permission denied", "No such file or directory", "Not a directory"])
async def test_what_a_login_shell_complains_of_is_nothing_of_a_path(sshd: Sshd, noise: str) -> None:
    (sshd.folder / ".bashrc").write_text(f'echo "bash: /opt/conda/setup.sh: {noise}" >&2\n')
    (sshd.folder / "file").touch()
    host = SshHost("ct129", sshd.address)
    assert noise in (await host.run(["true"])).stderr
    with pytest.raises(FileMissing):
        await host.stat(f"{sshd.folder}/nothing")
    nothing = [f"{sshd.folder}/nothing{number}" for number in range(5)]
    assert [stat and stat.kind for stat in await host.stat_many([*nothing, f"{sshd.folder}/file"])] == [None] * 5 + [
        "file"
    ]
    with pytest.raises(FileMissing):
        await commands.read(host, f"{sshd.folder}/nothing", 0, 1)
    with pytest.raises(FileMissing):
        await host.list(f"{sshd.folder}/nothing")
    with pytest.raises(HostError, match="is not a folder"):
        await commands.make_folder(host, f"{sshd.folder}/file/below", exclusive=False)
    await host.close()


async def test_a_host_without_stat_is_asked_by_sftp(sshd: Sshd) -> None:
    (sshd.folder / "file").write_bytes(b"12345")
    (sshd.folder / "bin").mkdir()
    (sshd.folder / ".bashrc").write_text(f"PATH={sshd.folder}/bin\n")
    for name in ("sh", "find", "test", "setsid"):
        (sshd.folder / "bin" / name).symlink_to(subprocess.check_output(["which", name], text=True).strip())
    os.symlink("file", sshd.folder / "link")
    host = SshHost("ct129", sshd.address)
    asked = [f"{sshd.folder}/{name}" for name in ["file", "link", "nothing"] * 100]
    assert [stat and stat.size for stat in await host.stat_many(asked)] == [5, 5, None] * 100
    assert [stat and stat.kind for stat in await host.stat_many(asked, follow=False)] == ["file", "link", None] * 100
    with pytest.raises(HostError, match="not an absolute path"):
        await host.stat_many(["file"])
    assert (await host.stat(f"{sshd.folder}/file")).size == 5
    with pytest.raises(FileMissing):
        await host.stat(f"{sshd.folder}/nothing")
    await host.close()
