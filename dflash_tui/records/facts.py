"""Facts: what was seen, where, and when. Caveats are computed from these and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Source:
    """Where a fact was read: a host's name, an absolute path, and the key or line in it ("" = the whole file)."""

    host: str
    path: str
    where: str = ""

    def __str__(self) -> str:
        place = f"{self.host}:{self.path}" if self.host else self.path
        return f"{place} [{self.where}]" if self.where else place


@dataclass(frozen=True)
class Fact:
    """One observed value. `value` is plain JSON data; `read_at` is ISO 8601 UTC of the workstation's clock.

    Kinds (the vocabulary that caveats know; a kind that nobody knows is kept and ignored):

    ``eval.block_size``           int, tokens in a block as evaluated (anchor included)
    ``eval.anchors``              {policy, per_prompt}: how anchors were chosen
    ``train.block_size``          int, of the trainer's arguments, its log, or (where these say none) what
                                  describes the drafter
    ``train.mask_token_id``       int, of the trainer's arguments
    ``train.taps``                list of int, the target's layers that the trainer's arguments name
    ``train.live``                {step, total, line, line_number, at}: the newest logged step at plan time
    ``train.newest_saved``        int, step of the newest complete checkpoint at plan time
    ``checkpoint.step``           int
    ``checkpoint.file``           {size, mtime, inode, links}: mtime is ISO 8601 UTC
    ``weights.audit``             records.checkpoint.Audit as JSON
    ``prompts.asked``             list of prompt ids, in file order
    ``prompts.present``           list of prompt ids that have hidden states
    ``prompts.short``             {prompt, tokens, horizon}: a completion that leaves no anchor a full horizon
    ``cache.files``               {prompt id: mtime ISO}: hidden-state files
    ``cache.identity``            the cache's recorded key (dict), or null when it records none
    ``cache.refused``             {prompt, reason, foreign}: hidden states that were there and could not be used;
                                  foreign: because they are of another target, other layers or another text
    ``cache.chosen``              {folder, why, usable: {folder: prompts}}: the hidden states used, of which ones
    ``eval.asked``                {path, step}: the checkpoint asked for, where a run of the same weights answers
    ``eval.like``                 {name, sha256, copied, unrecorded}: the result that an evaluation was to be like
    ``target.identity``           {name, target_config_sha256} of the evaluation's target
    ``weights.id``                weights_id of what the harness really loaded
    ``harness.versions``          {python, torch} that evaluated
    ``eval.taps``                 list of int, the drafter's taps as evaluated
    ``eval.mask_token_id``        int, as evaluated
    ``run.directory``             absolute path of the run directory; the source's host is the evaluation host
    ``pin.origin``                {path, pinned, found}: hashes of the file a pin was made from, then and now
    ``link.method``               "hardlink" | "reflink" | "copy" | "symlink"
    ``link.record``               {file: {inode, size, mtime, header_sha256}} of the linked checkpoint, at the start
    ``link.now``                  the same at the end
    ``harness.script``            {path, sha256} of the user's own script that evaluated
    ``baselines.configured``      list of names
    ``baselines.found``           list of names
    ``baselines.withheld``        {name, reason}: a configured baseline that could not be read or evaluated
    ``host.jump_only``            list of host names
    """

    kind: str
    value: Any
    source: Source
    read_at: str
