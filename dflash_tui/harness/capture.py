"""Making the hidden states that a prompt set lacks: greedy completions of a plain Qwen3 target, one file a prompt."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import torch

from dflash_tui.harness import rundir
from dflash_tui.harness.cache import write_features
from dflash_tui.harness.capturable import check_tokenizer
from dflash_tui.harness.errors import FeaturesThere, HarnessError, PromptRefused
from dflash_tui.harness.features import FORMAT, features_path
from dflash_tui.harness.mapped import Maps
from dflash_tui.harness.prompts import Prompt, read_prompts
from dflash_tui.harness.rundir import Progress
from dflash_tui.harness.target import Completion, Target, complete, load_target
from dflash_tui.harness.target_files import TargetFiles, eos_ids, open_target
from dflash_tui.harness.vocabulary import Vocabulary
from dflash_tui.records.requests import CaptureRequest

REPORT_TOKENS = 32


def capture(run_dir: Path) -> tuple[Path, ...]:
    """Carry out `run_dir`/capture.json: write the missing files and return them, in prompt order.

    Files that exist are left alone. Progress counts prompts; within a prompt, tokens. A prompt that is refused is said
    in log.txt and left out. Raises HarnessError when target, set or folder cannot be used, or nothing was captured.
    """
    request = rundir.read(run_dir / rundir.CAPTURE, CaptureRequest)
    torch.set_num_threads(request.threads)
    folder = Path(request.hidden_states)
    asked = _asked(request)
    missing = [prompt for prompt in asked if not os.path.lexists(features_path(folder, prompt.id))]
    rundir.say(run_dir, f"capture: {len(missing)} of {len(asked)} prompts have no hidden states in {folder}")
    for prompt in asked:
        path = features_path(folder, prompt.id)
        if path.is_symlink() and not path.exists():
            rundir.say(run_dir, f"{prompt.id}: left out: {path}: a link to nothing; remove it and capture again")
    if not missing:
        return ()
    written: list[Path] = []
    with Progress(run_dir, len(missing)) as progress:
        progress.report("loading")
        source = open_target(Path(request.target))
        model, vocabulary = load_target(source, Maps())
        tokenizer: Any = None
        for prompt in missing:
            progress.report("capture", prompt.id, 0, request.max_new_tokens)
            if features_path(folder, prompt.id).exists():
                _leave(run_dir, prompt, progress)
                continue
            try:
                if prompt.token_ids is None and tokenizer is None:
                    tokenizer = _tokenizer(source.folder)
                ids = prompt.token_ids or tuple(tokenizer.encode(prompt.text, add_special_tokens=False).ids)
                made = _complete(model, vocabulary, source, ids, request, progress, prompt.id)
                written.append(_write(folder, prompt, made, source, request))
            except FeaturesThere:
                _leave(run_dir, prompt, progress)
                continue
            except PromptRefused as error:
                rundir.say(run_dir, f"{prompt.id}: left out: {error}")
                continue
            progress.done += 1
            count = len(made.tokens) - made.prompt_len
            progress.report("capture", prompt.id, count, count)
            how = "ended" if made.ended else "cut at the token limit"
            rundir.say(run_dir, f"{prompt.id}: {count} tokens, {how}: {written[-1]}")
        if not progress.done:
            raise HarnessError(f"{request.prompts_path}: no prompt could be captured; see {run_dir / rundir.LOG}")
        progress.report("done")
    return tuple(written)


def _leave(run_dir: Path, prompt: Prompt, progress: Progress) -> None:
    """Another capture was quicker: two may run at once, as after one that was left."""
    rundir.say(run_dir, f"{prompt.id}: has hidden states by now; they are left as they are")
    progress.done += 1


def _asked(request: CaptureRequest) -> list[Prompt]:
    prompts = read_prompts(Path(request.prompts_path))
    if not request.prompts:
        return list(prompts)
    known = {prompt.id: prompt for prompt in prompts}
    strangers = [name for name in request.prompts if name not in known]
    if strangers:
        raise HarnessError(f"{request.prompts_path}: no prompt {', '.join(strangers)} in it; check the ids")
    return [known[name] for name in request.prompts]


def _complete(
    model: Target,
    vocabulary: Vocabulary,
    source: TargetFiles,
    ids: tuple[int, ...],
    request: CaptureRequest,
    progress: Progress,
    prompt: str,
) -> Completion:
    def step(count: int) -> None:
        if count % REPORT_TOKENS == 0:
            progress.report("capture", prompt, count, request.max_new_tokens)

    return complete(model, vocabulary, ids, request.taps, eos_ids(source), request.max_new_tokens, step)


def _write(folder: Path, prompt: Prompt, made: Completion, source: TargetFiles, request: CaptureRequest) -> Path:
    metadata = {
        "format": FORMAT,
        "target": request.target_name or source.name,
        "target_config_sha256": source.config_sha256,
        "layer_ids": ",".join(map(str, request.taps)),
        "layer_ids_mean": "output of block id = hidden_states[id+1]",
        "prompt_id": prompt.id,
        "prompt_len": str(made.prompt_len),
        "prompt_sha256": prompt.sha256,
        "ended": "eos" if made.ended else "length",
        "arithmetic": "float32",
        "created": rundir.now(),
    }
    return write_features(folder, prompt.id, made.hidden.to(torch.bfloat16), list(made.tokens), metadata)


def _tokenizer(folder: Path) -> Any:
    path = check_tokenizer(folder)
    tokenizers = importlib.import_module("tokenizers")
    return tokenizers.Tokenizer.from_file(str(path))
