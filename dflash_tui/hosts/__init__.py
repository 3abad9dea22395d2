"""Machines reached locally, over SSH or through a container's launcher: one `Host`, one error family."""
