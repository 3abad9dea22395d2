"""What fills the terminal: the overview with its zooms, the help, the question before a risky act."""
