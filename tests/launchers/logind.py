"""Stand-ins for systemd's loginctl and systemd-run, and for what logind does at logout."""

from __future__ import annotations

import os
import pwd
import signal
from contextlib import suppress
from pathlib import Path

USER = pwd.getpwuid(os.getuid()).pw_name


class Logind:
    """Stand-ins for loginctl and systemd-run, and a login session: what it started carries `STAND_IN_SCOPE=session`,
    what `systemd-run --scope` starts carries another. `log_out` ends the session's as logind does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.properties = {"KillUserProcesses": "yes", "KillOnlyUsers": "", "KillExcludeUsers": ""}
        self.linger = "no"
        self.manager = "exit 0"
        self.session = True

    def environment(self) -> dict[str, str]:
        self.folder.mkdir(exist_ok=True)
        said = "".join(f"{name}={value}\\n" for name, value in self.properties.items())
        self._tool(
            "loginctl",
            f'case "$2" in {USER}) printf "Linger={self.linger}\\n" ;; -p) printf "{said}" ;; *) exit 1 ;; esac',
        )
        self._tool(
            "systemd-run",
            'test "$XDG_RUNTIME_DIR" || { echo "Failed to connect to bus: No medium found" >&2; exit 1; }\n'
            'while [ "$1" != -- ]; do shift; done; shift\n'
            f'case "$1" in true) {self.manager} ;; esac\n'
            'STAND_IN_SCOPE=run exec "$@"',
        )
        kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
        session = {"XDG_SESSION_ID": "7"} if self.session else {}
        path = f"{self.folder}:{os.environ['PATH']}"
        return {**kept, **session, "PATH": path, "STAND_IN_SCOPE": "session", "OMP_NUM_THREADS": "1"}

    def _tool(self, name: str, script: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def log_out(self, run_dir: Path) -> None:
        """Kill the programs of the session that work on a run."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with suppress(OSError):
                    words, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
                    if os.fsencode(run_dir) in words and b"STAND_IN_SCOPE=session" in environment:
                        os.kill(int(entry.name), signal.SIGKILL)
