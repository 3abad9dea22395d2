"""Trust in host keys: a face answers what was asked, a person adds one by its fingerprint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dflash_tui.config import Config
from dflash_tui.console.answers import TrustAnswer, TrustedKey
from dflash_tui.console.errors import ConsoleError
from dflash_tui.console.links import ssh_address
from dflash_tui.hosts.asking import Ask, Asker
from dflash_tui.hosts.base import HostKeyUnknown, KeyOffer, LoginRefused
from dflash_tui.hosts.ssh_link import connect, disconnect
from dflash_tui.hosts.ssh_refusal import own_fingerprint

if TYPE_CHECKING:
    from dflash_tui.console.console import Console


async def answer(console: Console, *, fingerprint: str, yes: bool) -> None:
    """Answer the question about the key that was shown. Raises ConsoleError."""
    console.questions.answer(fingerprint, yes)


async def trust(config: Config, name: str, ask: Ask) -> TrustAnswer:
    """Connect to the host `name` and add each unknown key on the way that `ask` accepts. Raises TROUBLE: HostKeyUnknown
    for a key that was not accepted, HostKeyChanged for one that must not be."""
    if name not in config.hosts:
        known = ", ".join(config.hosts) or "none"
        raise ConsoleError(f"no host {name!r} under [hosts] of {config.path}; known: {known}")
    address, asker = ssh_address(config, name), Asker(ask)
    added: list[TrustedKey] = []
    problem = ""
    try:
        while True:
            try:
                await disconnect(await connect(name, address))
                break
            except LoginRefused as error:
                problem = str(error)  # its key is known: another matter
                break
            except HostKeyUnknown as error:
                key = _key(error.offer)
                if key in added or not await asker.accepted(error.offer):
                    raise
                added.append(key)
    finally:
        await asker.close()
    return TrustAnswer(name, tuple(added), problem)


def only(fingerprints: Sequence[str]) -> Ask:
    """Accepts a key that has one of the fingerprints, exactly, and no other."""
    wanted = set(fingerprints)
    for fingerprint in fingerprints:
        if not fingerprint.startswith("SHA256:") or len(fingerprint) != len("SHA256:") + 43:
            raise ConsoleError(
                f"--fingerprint: found {fingerprint[:80]!r}, expected SHA256: and 43 letters, as `ssh-keygen -l` prints"
            )

    async def ask(offer: KeyOffer) -> bool:
        return offer.fingerprint in wanted

    return ask


async def nobody(offer: KeyOffer) -> bool:
    """Where there is no one to ask, nothing is accepted."""
    return False


def described(offer: KeyOffer) -> tuple[str, ...]:
    """An offered key for a person who is asked about it."""
    return (
        f"{offer.shown} ({offer.address}) is not known yet. It shows this key:",
        f"  {offer.key_type}  {offer.fingerprint}",
        f"Compare it with what this prints on {offer.asked}: {own_fingerprint(offer.key_type)}",
    )


def _key(offer: KeyOffer) -> TrustedKey:
    return TrustedKey(offer.asked, offer.entry, offer.key_type, offer.fingerprint, offer.file)
