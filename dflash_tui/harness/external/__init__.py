"""A script of the user's own, run so that nothing that lies where it writes is lost."""
