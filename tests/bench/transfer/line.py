"""A line to a server that is long, or counted, or both: a relay of TCP connections in this process."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

IN_FLIGHT = 32 << 20
"""Bytes of one direction that may be under way, as on a line that is fast and far: more than any window of SSH."""

_PIECE = 1 << 18


@dataclass
class Line:
    """What the line is reached by, and what crossed it: `out` to the server, `back` from it."""

    port: int
    out: int = 0
    back: int = 0

    @property
    def bytes(self) -> int:
        """Both ways."""
        return self.out + self.back


@contextmanager
def line(port: int, *, delay: float = 0.0, in_flight: int = IN_FLIGHT) -> Iterator[Line]:
    """A line to `port` of this machine until the block ends, `delay` seconds long each way, at whatever speed. A
    sender waits while `in_flight` bytes are under way; a connection is taken at once, what it says arrives later."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listening = Line(listener.getsockname()[1])
        relay = _Relay(listener, port, delay, in_flight, listening)
        relay.start()
        try:
            yield listening
        finally:
            relay.stop()


class _Relay(threading.Thread):
    def __init__(self, listener: socket.socket, port: int, delay: float, in_flight: int, line: Line) -> None:
        super().__init__(name="line", daemon=True)
        self._listener, self._port, self._delay, self._in_flight, self._line = listener, port, delay, in_flight, line
        self._open: list[socket.socket] = []
        self._ways: list[_Way] = []

    def run(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                near.close()
                continue
            self._open += (near, far)
            for name, source, sink in (("out", near, far), ("back", far, near)):
                sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                way = _Way(name, source, sink, self._delay, self._in_flight, self._line)
                self._ways.append(way)
                way.start()

    def stop(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`
        self.join()
        for each in self._open:
            _hang_up(each)
        for way in self._ways:
            way.join()
        for each in self._open:
            each.close()


class _Way:
    """One direction of one connection: a thread that takes bytes in, and one that gives them out when they are due."""

    def __init__(
        self, name: str, source: socket.socket, sink: socket.socket, delay: float, in_flight: int, line: Line
    ) -> None:
        self._name, self._source, self._sink = name, source, sink
        self._delay, self._in_flight, self._line = delay, in_flight, line
        self._queue: deque[tuple[float, bytes]] = deque()
        self._held = 0
        self._broken = False
        self._change = threading.Condition()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._take, self._give)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _take(self) -> None:
        data = b"-"
        while data:
            try:
                data = self._source.recv(_PIECE)
            except OSError:
                data = b""
            with self._change:
                self._change.wait_for(lambda: self._held < self._in_flight or self._broken)
                if self._broken:
                    return
                self._queue.append((time.monotonic() + self._delay, data))
                self._held += len(data)
                self._change.notify_all()

    def _give(self) -> None:
        data = b"-"
        while data:
            with self._change:
                self._change.wait_for(lambda: self._queue)
                due, data = self._queue[0]
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                self._sink.sendall(data)
            except OSError:
                with self._change:
                    self._broken = True
                    self._change.notify_all()
                _hang_up(self._source)
                return
            with self._change:
                self._queue.popleft()
                self._held -= len(data)
                self._change.notify_all()
            setattr(self._line, self._name, getattr(self._line, self._name) + len(data))
        with suppress(OSError):
            self._sink.shutdown(socket.SHUT_WR)


def _hang_up(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
