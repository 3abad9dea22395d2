"""dflash-tui: watch a drafter train, move its newest checkpoint, evaluate it, and say how far to believe it."""

__version__ = "0.1.0"
