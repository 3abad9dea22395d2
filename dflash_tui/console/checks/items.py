"""One thing that a check looked at, and how looking is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from dflash_tui.console.answers import CheckItem, CheckState
from dflash_tui.console.errors import TROUBLE

GROUPS = ("config", "workstation", "hosts", "training", "evaluation", "baselines", "harness")
ITEM_SECONDS = 60.0

Items = list[CheckItem]


@dataclass(frozen=True)
class Group:
    """Makes the items of one group."""

    name: str

    def ok(self, item: str, sentence: str) -> CheckItem:
        """All is well."""
        return self._made(item, "ok", sentence)

    def warn(self, item: str, sentence: str) -> CheckItem:
        """It works, but less well than it could."""
        return self._made(item, "warn", sentence)

    def fail(self, item: str, sentence: str) -> CheckItem:
        """It does not work."""
        return self._made(item, "fail", sentence)

    def skip(self, item: str, cause: str) -> CheckItem:
        """Not looked at, because something that it rests on failed."""
        return self._made(item, "not tried", f"not tried: {cause}")

    def _made(self, item: str, state: CheckState, sentence: str) -> CheckItem:
        return CheckItem(self.name, item, state, " ".join(sentence.split()))


@dataclass(frozen=True)
class Reached:
    """Whether a host can be worked with: `cause` says why not, "" when it can."""

    name: str
    cause: str = ""


async def bounded(
    group: Group,
    item: str,
    look: Callable[[], Coroutine[Any, Any, Items]],
    seconds: float = ITEM_SECONDS,
) -> Items:
    """What a look finds; one that takes too long, or fails in a way that it did not foresee, is an item too."""
    try:
        async with asyncio.timeout(seconds):
            return await look()
    except TimeoutError:
        return [group.fail(item, f"no answer within {seconds:.0f} s; the host or its disk may be overloaded")]
    except TROUBLE as error:
        return [group.fail(item, str(error))]


def failed(items: Items, *names: str) -> bool:
    """Whether one of the named items failed or was not tried."""
    return any(item.name in names and item.state in ("fail", "not tried") for item in items)
