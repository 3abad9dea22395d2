"""Stand-ins for container launchers: real pid namespaces behind command lines that behave and fail as manuals say."""
