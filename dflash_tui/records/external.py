"""An evaluation by a script of the user's own: what is asked of it, which files are kept safe, what it left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Literal, Optional, Tuple

from dflash_tui.records.process import ProcessRecord

JOURNAL_VERSION = 1


@dataclass(frozen=True)
class ExternalRequest:
    """A part of the manifest. `template` is argv as configured, `command` the same with its placeholders filled.

    `script` is the file of it whose bytes (`script_sha256`) tell one version from another, "" where argv names none.
    `results` are paths where results appear, absolute or relative to the script's working directory; `inputs` what it
    only reads: never guarded. `total` is how many blocks were asked for.
    """

    template: Tuple[str, ...]
    command: Tuple[str, ...]
    script: str = ""
    script_sha256: str = ""
    results: Tuple[str, ...] = ()
    inputs: Tuple[str, ...] = ()
    progress: str = ""
    import_as: str = ""
    environment: Dict[str, str] = field(default_factory=dict)
    total: int = 0


@dataclass(frozen=True)
class ExternalLook:
    """Standard input of ``external-look``: the same before there is a run. `root` receives runs/."""

    command: Tuple[str, ...]
    root: str
    results: Tuple[str, ...] = ()
    inputs: Tuple[str, ...] = ()
    environment: Dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ExternalLooked:
    """Its answer: the script, the files that will be kept safe, those that are not (too many, too large,
    or not this user's to put back), and what makes the run impossible, as sentences."""

    script: str
    script_sha256: str
    guarded: Tuple[str, ...]
    unguarded: Tuple[str, ...]
    problems: Tuple[str, ...]


@dataclass(frozen=True)
class Guarded:
    """A path that the script may write to, as it was before. `kind` "link" is a symbolic one with the text `target`.

    `kept` holds the old bytes: by `how` "link" it is the old file itself (the path has a copy of it meanwhile, whose
    `mark` tells whether it was touched), by "copy" its bytes. `written` is what the script left there. Both are
    relative to the run directory. `folders` were missing, innermost first.
    """

    path: str
    kind: Literal["file", "link", "absent"]
    kept: str = ""
    written: str = ""
    how: Literal["link", "copy", ""] = ""
    sha256: str = ""
    size: int = 0
    mode: int = 0
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    target: str = ""
    mark: Tuple[int, ...] = ()
    folders: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Output:
    """A file that the script wrote: `name` in the run directory, `origin` where the script put it."""

    name: str
    origin: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Journal:
    """``external.json``. `state` "saving": old files are being put aside, the script has not begun; "guarding": it may
    have; "restored": the old files are back. `outputs`: what it wrote, likeliest results first, once it has ended well.
    `child` is the script's process."""

    version: int
    run_dir: str
    state: Literal["saving", "guarding", "restored"]
    files: Tuple[Guarded, ...] = ()
    child: Optional[ProcessRecord] = None
    outputs: Tuple[Output, ...] = ()
