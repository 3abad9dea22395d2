"""A checkpoint from the host that has it to the host that evaluates it: planned, moved, verified, then named."""
