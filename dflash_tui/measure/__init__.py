"""Ranks to streaks, τ and DDTree acceptance: one definition for the harness, the console and every comparison."""
