"""One file per thing a person can do; the app and the command line call the same act."""
