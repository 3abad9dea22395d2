"""Whether the user's own evaluation script could be run."""

from __future__ import annotations

import posixpath

from dflash_tui.config import HarnessConfig
from dflash_tui.console.checks.items import Group, Items, Reached, bounded
from dflash_tui.console.checks.paths import where
from dflash_tui.console.console import Console
from dflash_tui.console.quantities import counted
from dflash_tui.evals import external
from dflash_tui.evals.errors import EvaluationError
from dflash_tui.evals.external import Script
from dflash_tui.evals.placeholders import used
from dflash_tui.evals.ship import ship
from dflash_tui.hosts.base import FileMissing

GROUP = Group("harness")
SCRIPTS = (".py", ".sh", ".bash", ".pl", ".rb", ".jl", ".pyz")


async def look(console: Console, reached: Reached, cause: str) -> Items:
    """Placeholders, program, script and result files. `cause`: why the evaluation host can't be asked, else ""."""
    own = console.config.harness
    if own is None:
        return []
    try:
        used(_script(own).words)
    except EvaluationError as error:
        return [GROUP.fail("command", str(error)), GROUP.skip("script", "harness.command can't be filled")]
    if reached.cause or cause:
        return [GROUP.skip("command", reached.cause or cause)]
    return await bounded(GROUP, "command", lambda: _looked(console, own), external.LOOK_SECONDS)


async def _looked(console: Console, own: HarnessConfig) -> Items:
    host, wanted = console.evaluation_host, console.evaluation
    for word in own.command[1:]:
        if word.startswith("/") and "{" not in word and posixpath.splitext(word)[1] in SCRIPTS:
            try:
                await host.stat(word)
            except FileMissing:
                return [GROUP.fail("script", await where(host, word, "your script (harness.command)"))]
    harness = await ship(host, wanted.root)
    try:
        found = await external.look(host, wanted.python, harness, _script(own), wanted.root)
    except EvaluationError as error:
        return [GROUP.fail("command", str(error))]
    items = [GROUP.ok("command", f"{host.name}: {own.command[0]} runs {found.script or 'a program without a script'}")]
    kept = f"{counted(len(found.guarded), 'file')} that it may write to are kept safe"
    if found.unguarded:
        sentence = f"{kept}; too many, too large or not yours to put back: {', '.join(found.unguarded[:3])}"
        items.append(GROUP.warn("results", f"{host.name}: {sentence}; name what it writes in harness.results"))
    else:
        items.append(GROUP.ok("results", f"{host.name}: {kept}"))
    return items


def _script(own: HarnessConfig) -> Script:
    return Script(own.command, own.results, own.progress, own.import_as, tuple(own.environment.items()))
