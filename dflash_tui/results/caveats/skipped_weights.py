"""SKIPPED_WEIGHTS: tensors that the drafter needs and that are not there, or that are there and were not used."""

from __future__ import annotations

from dflash_tui.records.checkpoint import Audit
from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results import evidence

CODE = "SKIPPED_WEIGHTS"
_FROZEN = ("embed_tokens.weight", "lm_head.weight")


def find(evaluation: Evaluation) -> tuple[Finding, ...]:
    """`void` for missing, misshapen or not-finite drafter tensors, `note` for unused extras; values are names."""
    audit = evidence.audit(evaluation)
    if audit is None:
        return ()
    sources = (evidence.source(evaluation, "weights.audit"),)
    misshapen = tuple(sentence.split(":", 1)[0] for sentence in audit.mismatched)
    broken = tuple(dict.fromkeys((*audit.missing, *misshapen, *audit.nonfinite)))
    found = []
    if broken:
        parts = [
            f"{what} {'; '.join(items)}"
            for what, items in (
                ("missing:", audit.missing),
                ("of another shape:", audit.mismatched),
                ("not finite:", audit.nonfinite),
            )
            if items
        ]
        found.append(Finding(CODE, "void", f"Drafter tensors that can't be used; {'; '.join(parts)}.", broken, sources))
    unused = _unused(audit)
    if unused:
        verb, them = ("was", "it") if len(unused) == 1 else ("were", "them")
        sentence = f"{', '.join(unused)} {verb} in the checkpoint and not used: the drafter does not need {them}."
        found.append(Finding(CODE, "note", sentence, unused, sources))
    return tuple(found)


def _unused(audit: Audit) -> tuple[str, ...]:
    """A stored embedding or head counts as unused only when it is known to equal the target's."""
    frozen = tuple(name for name, state in zip(_FROZEN, (audit.embedding, audit.head), strict=True) if state == "equal")
    return tuple(sorted({*(name for name in audit.unused if name not in _FROZEN), *frozen}))
