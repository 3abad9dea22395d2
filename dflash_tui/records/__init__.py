"""The data that crosses a wire, a disk or a room. Stdlib dataclasses only; Python 3.10 syntax (the harness carries
them to hosts that have only torch)."""
