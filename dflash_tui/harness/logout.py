"""Hosts that end a user's programs at logout (logind's KillUserProcesses): a run leaves the session first, or says that
it can't.

A program stays where the user "lingers" and it has a scope of the user's own manager (logind.conf(5), loginctl(1),
systemd-run(1)). Lingering is the user's to allow: it is never switched on from here.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Sequence

from dflash_tui.harness.errors import EndedAtLogout

_LEFT = "DFLASH_LEFT_SESSION"
_SECONDS = 10.0


def leave_session() -> None:
    """Go on outside the login session where the host would end this program with it: the program is started again in a
    scope of its own. Raises EndedAtLogout where that is not allowed."""
    if _LEFT in os.environ or not ended_at_logout():
        return
    user = _user()
    if _told("show-user", user, "-p", "Linger").get("Linger") != "yes":
        raise EndedAtLogout(
            f"this host ends all programs of {user} at logout (KillUserProcesses=yes) and {user} does not linger; "
            f"`loginctl enable-linger {user}`, run there once, lets runs stay"
        )
    os.environ[_LEFT] = "1"
    os.environ.setdefault("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    scope = ["systemd-run", "--user", "--scope", "--quiet", "--collect", "--"]
    said = _run([*scope, "true"])
    if said is None or said.returncode:
        lines = said.stderr.strip().splitlines() if said is not None else []
        why = lines[-1] if lines else "it can't be run"
        raise EndedAtLogout(f"this host ends all programs of {user} at logout, and `systemd-run --user` fails: {why}")
    os.execvp(scope[0], [*scope, *sys.orig_argv])


def ended_at_logout() -> bool:
    """Whether logind will end this program when its login session ends. A program of no session is left alone."""
    if "XDG_SESSION_ID" not in os.environ:
        return False
    manager = _told("show-user", "-p", "KillUserProcesses", "-p", "KillOnlyUsers", "-p", "KillExcludeUsers")
    only, exempt = manager.get("KillOnlyUsers", "").split(), manager.get("KillExcludeUsers", "").split()
    concerned = _user() in only if only else _user() not in exempt
    return manager.get("KillUserProcesses") == "yes" and concerned


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def _told(*words: str) -> dict[str, str]:
    """What loginctl tells, by property; nothing where it can't be asked."""
    done = _run(["loginctl", *words])
    lines = done.stdout.splitlines() if done is not None and done.returncode == 0 else []
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def _run(argv: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
    if shutil.which(argv[0]) is None:
        return None
    try:
        return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
