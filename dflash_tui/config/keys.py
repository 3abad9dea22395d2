"""Every table and key that a config may have: its shape, whether it is needed, and what it means in one line.

Reading, the JSON schema and the comments of a written config all come from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CONFIG_VERSION = 1
LARGEST_BLOCK = 256  # tokens, anchor included
MODES = ("slim", "full")
ROUTES = ("relay", "direct", "auto")


@dataclass(frozen=True)
class Shape:
    """What a value may be: one of `kinds` (a bool is no number); with `listed` a list of them, with `single` also one
    of them alone, with `named` a table of them. `said` is that in words."""

    kinds: tuple[type, ...]
    said: str
    listed: bool = False
    single: bool = False
    named: bool = False

    def fits(self, value: Any) -> bool:
        """Whether a value has this shape."""
        if self.named:
            return isinstance(value, dict) and all(type(item) in self.kinds for item in value.values())
        if self.listed and isinstance(value, list):
            return all(type(item) in self.kinds for item in value)
        return (self.single or not self.listed) and type(value) in self.kinds


TEXT = Shape((str,), "a string")
RATE = Shape((str,), 'a string such as "200 MB/s"')
NUMBER = Shape((int,), "a whole number")
REAL = Shape((int, float), "a number")
TRUTH = Shape((bool,), "true or false")
WORDS = Shape((str,), "a list of strings", listed=True)
PATHS = Shape((str,), "a string or a list of strings", listed=True, single=True)
NUMBERS = Shape((int,), "a list of whole numbers", listed=True)
TEXTS = Shape((str,), "a table of strings", named=True)


@dataclass(frozen=True)
class Key:
    """A key of a table. `means` is one line for people who write a config."""

    shape: Shape
    means: str
    needed: bool = False


TABLES: dict[str, dict[str, Key]] = {
    "training": {
        "name": Key(TEXT, "what the training is called; else the folder above the checkpoints' folder"),
        "host": Key(TEXT, "where it runs: a name under [hosts], or local", needed=True),
        "log": Key(TEXT, "the trainer's log, absolute", needed=True),
        "checkpoints": Key(TEXT, "the folder that checkpoints are saved in, absolute", needed=True),
        "arguments": Key(TEXT, "the trainer's arguments as JSON, absolute: evidence of the trained block size"),
    },
    "evaluation": {
        "host": Key(TEXT, "where drafters are evaluated: a name under [hosts], or local", needed=True),
        "root": Key(TEXT, "the folder that receives runs/, checkpoints/ and the harness", needed=True),
        "target": Key(TEXT, "the target model, a Hugging Face folder", needed=True),
        "prompts": Key(TEXT, "the prompts, one JSON object a line: id and prompt", needed=True),
        "hidden_states": Key(PATHS, "the target's hidden states: a folder, or several to choose from", needed=True),
        "python": Key(TEXT, "a Python of 3.10 or newer that has torch"),
        "block_size": Key(NUMBER, "tokens in a block, anchor included; 0 is the drafter's own"),
        "threads": Key(NUMBER, "threads of an evaluation; 0 is every core but one"),
    },
    "hosts": {
        "ssh": Key(TEXT, "user@host:port, or an alias of ~/.ssh/config; else the host's own name"),
        "via": Key(TEXT, "the host that a container's launcher runs on"),
        "container": Key(WORDS, "the launcher's argv, such as pct exec 200 --"),
        "jump": Key(TEXT, "the host that the connection goes through"),
        "jump_only": Key(TRUTH, "hopped through and nothing else: no command, no file"),
        "attached": Key(TRUTH, "what is started there ends with its launcher"),
        "direct": Key(TEXT, "user@host:port, by which other hosts reach it over SSH themselves"),
    },
    "drafter": {
        "config": Key(TEXT, "the drafter's config.json on the evaluation host, absolute"),
        "block_size": Key(NUMBER, "the trained block size"),
        "mask_token_id": Key(NUMBER, "the token that fills draft slots"),
        "taps": Key(NUMBERS, "target layers whose output is tapped, 0-based, in concatenation order"),
        "rope_theta": Key(REAL, "the base of the rotary embedding"),
        "rms_norm_eps": Key(REAL, "epsilon of the norms"),
        "layer_types": Key(WORDS, "one attention type a layer"),
        "sliding_window": Key(NUMBER, "tokens that a sliding layer sees"),
        "is_causal": Key(TRUTH, "whether slots see only earlier slots"),
        "num_attention_heads": Key(NUMBER, "query heads"),
        "sample_from_anchor": Key(TRUTH, "whether slot 0 predicts the next token too"),
    },
    "baseline": {
        "name": Key(TEXT, "what it is called in comparisons", needed=True),
        "file": Key(TEXT, "a result file, absolute; pinned as it is when first seen"),
        "drafter": Key(TEXT, "instead of `file`: a drafter (folder or weights), evaluated beside each checkpoint"),
        "host": Key(TEXT, "where it lies; a file by default here, a drafter on the evaluation host"),
        "config": Key(TEXT, "config.json of a `drafter` that has none beside it, on the evaluation host"),
    },
    "harness": {
        "command": Key(WORDS, "argv of your own evaluation script, with placeholders", needed=True),
        "results": Key(PATHS, "where its results appear; else found by looking"),
        "progress": Key(TEXT, "a regular expression with the groups done and total"),
        "import_as": Key(TEXT, "the importer that reads the results; else recognised"),
        "environment": Key(TEXTS, "environment variables for it"),
    },
    "transfer": {
        "mode": Key(TEXT, "slim: only what an evaluation reads; full: files as they are"),
        "route": Key(TEXT, "relay: through this machine; direct: from host to host; auto: direct where that can be"),
        "limit": Key(RATE, 'the most that transfers take together, such as "200 MB/s"; "" for no limit'),
    },
    "interface": {"theme": Key(TEXT, "the app's theme")},
}
ABOUT: dict[str, str] = {
    "training": "what is watched",
    "evaluation": "where drafters are evaluated; without it this console only watches",
    "hosts": "how each host is reached",
    "drafter": "only what neither a config beside the weights nor the checkpoint itself says",
    "baseline": "results to compare with, pinned as they are when first seen; several may be named",
    "harness": "your own evaluation script instead of the one that is sent",
    "transfer": "how checkpoints are moved",
    "interface": "how the app looks",
}
"""What each table is for, in one line."""

TOP = ("version", *TABLES)
NEEDED_TABLES = ("training",)
