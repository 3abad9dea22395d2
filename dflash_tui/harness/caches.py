"""Folders of hidden states as a survey finds them: what each has for the prompts that were asked for. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dflash_tui.harness import memory
from dflash_tui.harness.errors import ForeignFeatures, PromptRefused
from dflash_tui.harness.features import FeaturesHeader, check_identity, features_path, read_features_header
from dflash_tui.harness.prompts import Prompt
from dflash_tui.records.settings import DrafterSettings
from dflash_tui.records.survey import SurveyedCache, SurveyedPrompt, SurveyProblem


def asked(prompt: Prompt) -> SurveyedPrompt:
    """A prompt before anybody has looked for its hidden states."""
    tokens = None if prompt.token_ids is None else len(prompt.token_ids)
    return SurveyedPrompt(id=prompt.id, sha256=prompt.sha256, found=False, features=None, tokens=tokens)


def look_through(
    folder: str,
    prompts: Sequence[Prompt],
    config_sha256: str,
    settings: DrafterSettings | None,
    capture_refused: str = "",
    held: int = 0,
) -> SurveyedCache:
    """What a folder has. `config_sha256` is the target's, "" when it is unknown; without `settings` a file counts as
    usable that can be read. `capture_refused`: why none can be captured. `held`: memory that the weights take."""
    found: list[SurveyedPrompt] = []
    headers: list[FeaturesHeader] = []
    problems: list[SurveyProblem] = []
    for prompt in prompts:
        item, header = _prompt(folder, prompt, config_sha256, settings)
        found.append(item)
        headers += [header] if header is not None else []
        if item.refused:
            problems.append(SurveyProblem("warn", f"prompt {prompt.id}", item.refused))
    if found and not headers:
        problems.append(SurveyProblem("error", "hidden states", _nothing_usable(folder, found, capture_refused)))
    needed = None if settings is None else memory.drafting(settings, headers, held)
    return SurveyedCache(folder, tuple(found), needed, tuple(problems))


def _prompt(
    folder: str, prompt: Prompt, config_sha256: str, settings: DrafterSettings | None
) -> tuple[SurveyedPrompt, FeaturesHeader | None]:
    """The prompt, and its hidden states' header where an evaluation can use them. A link to nothing counts as found."""
    path = features_path(Path(folder), prompt.id)
    if not os.path.lexists(path):
        return asked(prompt), None
    found = replace(asked(prompt), found=True)
    try:
        header = read_features_header(path)
        found = replace(
            found,
            features_id=header.header_id,
            mtime=path.stat().st_mtime,
            layer_ids=header.layer_ids,
            identity=header.identity,
            prompt_len=header.prompt_len,
            completion_len=header.completion_len,
        )
        if settings is not None:
            check_identity(header, settings, prompt.sha256, config_sha256)
    except PromptRefused as error:
        return replace(found, refused=str(error), foreign=isinstance(error, ForeignFeatures)), None
    return replace(found, features=path.name), header


def _nothing_usable(folder: str, prompts: Sequence[SurveyedPrompt], capture_refused: str) -> str:
    """Why no prompt can be evaluated, and what makes that right. Capturing never replaces a file that is there."""
    refused = [item.refused for item in prompts if item.refused]
    asked_for = f"{folder}: none of {f'the {len(prompts)} prompts' if len(prompts) > 1 else '1 prompt'} asked has"
    there = "" if os.path.isdir(folder) or refused else ", for that folder does not exist"
    make = "make them with: dflash-tui capture"
    if capture_refused:
        make = f"put your own there, for they can't be captured: {capture_refused}"
    if not refused:
        return f"{asked_for} hidden states{there}; {make}"
    return (
        f"{asked_for} usable hidden states, {len(refused)} have some that are refused, first {refused[0]}; move what "
        f"is refused away and {make}"
    )
