"""A host's key that is not known yet, asked about in the app."""

from __future__ import annotations

import asyncio
import getpass
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from dflash_tui.config import Config, parse_config
from dflash_tui.console.events import KeyAnswered, KeyAsked
from dflash_tui.console.session import Session
from dflash_tui.hosts.base import KeyOffer
from dflash_tui.results.store import Store
from dflash_tui.tui.app import DflashApp
from dflash_tui.tui.lines import line
from dflash_tui.tui.screens.trust import TrustKey, grouped, question_lines
from dflash_tui.tui.start import make_app
from tests.sshd import Sshd, running_sshd
from tests.tui import story
from tests.tui.recording import RecordingConsole
from tests.tui.screens import PicturedApp

FINGERPRINT = "SHA256:Yk2hN0dUeNhXz4tB6nQm3vR8s1WcJpLgAaKfEoT5iZw"
OFFER = KeyOffer(
    name="pve1", entry="[pve1.example.org]:2222", address="192.0.2.17:2222", key_type="ssh-ed25519", data="AAAA",
    fingerprint=FINGERPRINT, file="/home/me/.ssh/known_hosts", via="",
)  # fmt: skip
JUMP = KeyOffer(
    name="pve1", entry="gate.example.org", address="192.0.2.1:22", key_type="ecdsa-sha2-nistp256", data="AAAA",
    fingerprint=FINGERPRINT, file="/home/me/.ssh/known_hosts", via="gate.example.org",
)  # fmt: skip


def _asked(offer: KeyOffer) -> PicturedApp:
    return PicturedApp(RecordingConsole(story.folded((KeyAsked(offer),), story.finished())))


async def _settled(pilot: Pilot[None]) -> None:
    for _ in range(3):
        await pilot.pause()


@pytest.mark.parametrize("size", [(120, 40), (80, 24)], ids=["120x40", "80x24"])
def test_the_question(size: tuple[int, int], snap_compare: Callable[..., bool]) -> None:
    async def shown(pilot: Pilot[None]) -> None:
        pilot.app.on_state_changed()  # type: ignore[attr-defined]
        await _settled(pilot)

    assert snap_compare(_asked(OFFER), terminal_size=size, run_before=shown)


@pytest.mark.parametrize("offer", [OFFER, JUMP], ids=["host", "jump"])
@pytest.mark.parametrize("width", [68, 50])
def test_the_question_says_everything_at_any_width(offer: KeyOffer, width: int) -> None:
    lines = question_lines(offer, width)
    text = "".join(item.plain for item in lines).replace(" ", "")
    assert all(item.width <= width for item in lines)
    for part in (offer.via or offer.name, offer.address, offer.key_type, FINGERPRINT, offer.file):
        assert part in text
    assert ("ecdsa" if offer is JUMP else "ed25519") + "_key.pub" in text
    assert ("gate.example.orgonthewaytopve1" in text) is (offer is JUMP)
    assert f"printson{offer.asked}itself" in text


def test_groups_of_a_fingerprint_leave_no_gap() -> None:
    assert line(*grouped(FINGERPRINT)).plain == FINGERPRINT


@pytest.mark.parametrize(("key", "yes"), [("y", True), ("n", False), ("escape", False)])
async def test_keys_answer_for_the_key_that_was_shown(key: str, yes: bool) -> None:
    console = RecordingConsole(story.finished())
    app = DflashApp(console)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        console.emit(KeyAsked(OFFER))
        await _until(pilot, lambda: isinstance(app.screen, TrustKey))
        await pilot.pause(0.35)
        await pilot.press("enter", key)
        await pilot.pause()
        assert console.begun == [("trust", {"fingerprint": FINGERPRINT, "yes": yes})]
        console.emit(KeyAnswered(OFFER), *story.training())
        await pilot.pause(0.3)
        assert not isinstance(app.screen, TrustKey)


async def test_a_key_still_held_from_before_does_not_answer() -> None:
    console = RecordingConsole(story.finished())
    app = DflashApp(console)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        console.emit(KeyAsked(OFFER))
        await _until(pilot, lambda: isinstance(app.screen, TrustKey))
        assert isinstance(app.screen, TrustKey)
        app.screen._opened, app.screen._deaf = app.screen._opened, 60.0
        await pilot.press("y")
        await pilot.pause()
        assert console.begun == []


async def test_the_fingerprint_can_be_selected_whole() -> None:
    app = _asked(OFFER)
    async with app.run_test(size=(80, 24)) as pilot:
        app.on_state_changed()
        await _until(pilot, lambda: isinstance(app.screen, TrustKey))
        await pilot.pause()
        app.screen.text_select_all()
        await pilot.pause()
        assert FINGERPRINT in (app.screen.get_selected_text() or "")


# -- with a real server ---------------------------------------------------------------------------------------------


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    """A server that the user's ssh configuration names `lab`, and whose key nobody knows."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / "lab").mkdir()
    with running_sshd(tmp_path / "lab") as server:
        (home / ".ssh" / "config").write_text(
            f"Host lab\n  HostName 127.0.0.1\n  Port {server.port}\n  User {getpass.getuser()}\n"
            f"  IdentityFile {server.folder}/client_key\n"
        )
        data = tmp_path / "data"
        (data / "checkpoints").mkdir(parents=True)
        (data / "train.log").write_text("step 5329/20000 loss 2.007 lr 2.9e-4\n")
        yield server


def _config(server: Sshd) -> Config:
    data = server.folder.parent / "data"
    return parse_config(
        f'[training]\nhost = "lab"\nlog = "{data}/train.log"\ncheckpoints = "{data}/checkpoints"\n[hosts.lab]\n',
        "config.toml",
    )


@asynccontextmanager
async def _shown(server: Sshd) -> AsyncIterator[Pilot[None]]:
    shown = Session(_config(server), Store(server.folder.parent / "state"))
    app = make_app(connect=shown.connect, themes=())
    try:
        async with app.run_test(size=(120, 40)) as pilot:
            yield pilot
    finally:
        await shown.close()


async def _until(pilot: Pilot[None], true: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await pilot.pause(0.02)


def _known(server: Sshd) -> Path:
    return server.folder.parent / "home" / ".ssh" / "known_hosts"


async def test_after_yes_the_watch_connects_by_itself(lab: Sshd) -> None:
    async with _shown(lab) as pilot:
        app = pilot.app
        assert isinstance(app, DflashApp)
        await _until(pilot, lambda: isinstance(app.screen, TrustKey))
        listed = subprocess.run(["ssh-keygen", "-lf", lab.folder / "host_key.pub"], capture_output=True, text=True)
        assert isinstance(app.screen, TrustKey)
        assert app.screen.offer.fingerprint == listed.stdout.split()[1]
        assert not _known(lab).exists()
        await pilot.pause(0.35)
        await pilot.press("y")
        await _until(pilot, lambda: app.newest.training.progress and app.newest.training.progress.step == 5329)
        assert app.newest.hosts["lab"].link == "live"
        assert not isinstance(app.screen, TrustKey)
    assert _known(lab).read_text() == f"[127.0.0.1]:{lab.port} {lab.host_key}\n"


async def test_after_no_the_panel_says_what_is_needed_and_nothing_is_asked_again(lab: Sshd) -> None:
    async with _shown(lab) as pilot:
        app = pilot.app
        assert isinstance(app, DflashApp)
        await _until(pilot, lambda: isinstance(app.screen, TrustKey))
        await pilot.press("n")
        await _until(pilot, lambda: app.newest.hosts.get("lab") and app.newest.hosts["lab"].link == "lost")
        lost = app.newest.hosts["lab"]
        assert "run `dflash-tui trust lab --fingerprint SHA256:" in lost.reason
        assert lost.retry_at is None
        await pilot.pause(0.5)
        shown = " ".join(item.plain for item in app.overview.panels["training"].drawing.lines)
        assert "dflash-tui trust lab --fingerprint" in " ".join(shown.split()), shown
        await pilot.press("R")
        await pilot.pause(0.5)
        assert not isinstance(app.screen, TrustKey)
        assert not _known(lab).exists()


async def test_leaving_with_the_question_open_ends_cleanly(lab: Sshd) -> None:
    async with _shown(lab) as pilot:
        app = pilot.app
        await _until(pilot, lambda: isinstance(app.screen, TrustKey))
    assert not _known(lab).exists()
    assert sys.exc_info() == (None, None, None)
