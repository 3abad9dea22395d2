"""Runs beside the target, on the evaluation host: loads a drafter, drafts blocks, writes down the ranks.

Only `drafter`, `load`, `cache`, `draft`, `target`, `capture` and `evaluate` import torch; the rest must stay importable
without it."""
