"""Evaluations on their host: shipping the harness, looking before leaping, run directories, launching, attaching."""
