"""Looking at every host, path, program and permission of a config before anything depends on them."""
