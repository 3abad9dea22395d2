"""What a config could name, found by looking on a host: containers, logs, checkpoints, targets, prompts, pythons.

Everything is bounded in time and number, and nothing is written anywhere.
"""
