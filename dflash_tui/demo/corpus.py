"""The programs that the demo's target learns to write, and their instructions; templates are in `data/tasks.toml`."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from dflash_tui.demo.errors import DemoError

DATA = Path(__file__).parent / "data"

EVALUATED = (
    "fizzbuzz",
    "binary_search",
    "linked_list_reverse",
    "graph_bfs",
    "merge_sort",
    "lru_cache",
    "json_parser",
    "matrix_mul",
    "prime_sieve",
    "word_count",
)
"""Ids of the ten evaluated tasks, in the order of the prompt set."""


@dataclass(frozen=True)
class Document:
    """One instruction and the program that answers it (which ends with a newline)."""

    task: str
    instruction: str
    program: str


@dataclass(frozen=True)
class Task:
    """A template of documents: every `$name` takes one of its choices, docstring and example may be left out."""

    id: str
    instruction: str
    program: str
    doc: str
    example: str
    names: dict[str, tuple[str, ...]]
    held_out: dict[str, str | bool] | None

    def document(self, choice: dict[str, str], *, doc: bool, example: bool) -> Document:
        """The document of one choice of names; raises `DemoError` when a name of the template is missing."""
        lines = [line for line in self.program.strip("\n").split("\n") if doc or line.strip() != "$doc"]
        program = "\n".join(lines).replace("$doc", f'"""{self.doc}"""') + "\n"
        if example:
            program += f"\n\n{self.example}\n"
        instruction = self.instruction
        instruction += " Add a docstring." if doc else ""
        instruction += " End with an example." if example else ""
        try:
            return Document(self.id, Template(instruction).substitute(choice), Template(program).substitute(choice))
        except KeyError as missing:
            name = missing.args[0]
            raise DemoError(f"tasks.toml: task {self.id} has no choice for ${name}; add names.{name}") from None

    def sample(self, rng: random.Random, usual: float = 0.0) -> Document:
        """A random document of this task; names within a document differ from each other.

        With probability `usual` a name is the usual one: that of the held-out document, else the first of its choices.
        """
        while True:
            choice = {name: rng.choice(values) for name, values in self.names.items()}
            for name, values in self.names.items():
                if rng.random() < usual:
                    choice[name] = str((self.held_out or {}).get(name, values[0]))
            if len(set(choice.values())) == len(choice):
                break
        doc = "$doc" in self.program and rng.random() < 0.4
        return self.document(choice, doc=doc, example=rng.random() < 0.3)

    def evaluated(self) -> Document:
        """The document that is evaluated and held out of all training; raises `DemoError` if there is none."""
        if self.held_out is None:
            raise DemoError(f"tasks.toml: task {self.id} is evaluated but has no held_out; add the names of its prompt")
        choice = {name: value for name, value in self.held_out.items() if isinstance(value, str)}
        return self.document(choice, doc=bool(self.held_out["doc"]), example=bool(self.held_out["example"]))


def tasks(path: Path = DATA / "tasks.toml") -> dict[str, Task]:
    """All tasks by id, in file order."""
    with path.open("rb") as file:
        rows = tomllib.load(file)["task"]
    return {
        row["id"]: Task(
            id=row["id"],
            instruction=row["instruction"],
            program=row["program"],
            doc=row["doc"],
            example=row["example"],
            names={name: tuple(values) for name, values in row["names"].items()},
            held_out=row.get("held_out"),
        )
        for row in rows
    }


def evaluation_documents(by_id: dict[str, Task]) -> list[Document]:
    """The ten evaluated documents, in the order of `EVALUATED`."""
    return [by_id[name].evaluated() for name in EVALUATED]


def documents(by_id: dict[str, Task], names: Sequence[str], seed: int, usual: float = 0.0) -> Iterator[Document]:
    """Endless training documents: the named tasks in turn, in an order shuffled every round.

    Held-out documents are passed over; `usual` as in `Task.sample`.
    """
    rng = random.Random(seed)
    held_out = {document.instruction for document in evaluation_documents(by_id)}
    while True:
        for name in rng.sample(names, len(names)):
            document = by_id[name].sample(rng, usual)
            while document.instruction in held_out:
                document = by_id[name].sample(rng, usual)
            yield document
