"""`Line`: the connection of a stream, which may be closed while it is being opened or read."""

from __future__ import annotations

from typing import Any

from tenure.client.plan.steps import Plan, Read
from tenure.client.streams.opening import open_stream
from tenure.client.transport.fork import renew_in_child
from tenure.client.transport.wire import Request, WireError

__all__ = ["Line"]


class Line:
    """At most one open connection. `close` may be called by another thread, by another task, and by a signal handler
    that interrupts the thread which reads; nothing is opened or read after it. In a forked process it is closed once it
    was used: the stream goes on in the parent.
    """

    def __init__(self) -> None:
        self.closed = False
        self._used = False
        self._stream: Any = None
        renew_in_child(self)

    def after_fork(self) -> None:
        """Forget the connection without touching it."""
        self.closed = self.closed or self._used
        self._stream = None

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self._stream is not None

    def open(self, request: Request) -> Plan[None]:
        """Connect. Raises WireError, and the error that the server answers with instead of a stream."""
        self._used = True
        self._stream = yield from open_stream(request)
        if self.closed:  # while it was being opened, when there was nothing to close
            self.drop()

    def read(self) -> Plan[bytes]:
        """Return the next bytes, none where the server ended the stream. Raises WireError."""
        stream = self._stream
        if stream is None:
            raise WireError("the stream was closed", sent=True)
        chunk: bytes = yield Read(stream)
        return chunk

    def drop(self) -> None:
        """Give up the connection; another may be opened."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def close(self) -> None:
        """Give up the connection for good."""
        self.closed = True
        self.drop()
