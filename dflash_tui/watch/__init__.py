"""Following a training: its growing log, what the log says, and the checkpoints it saves."""
