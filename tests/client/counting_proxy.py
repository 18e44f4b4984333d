"""`CountingProxy`: a proxy before a server that counts connections and streams, and can refuse all."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import Self

__all__ = ["CountingProxy"]


class CountingProxy:
    """A proxy that passes bytes to a port while it is ``open``; otherwise it counts and refuses each connection.

    ``attempts`` are the times of all connections, ``streams`` those of streams that the server began to answer.
    """

    def __init__(self, port: int) -> None:
        self.target_port = port
        self.open = True
        self.attempts: list[float] = []
        self.streams: list[float] = []
        self._live: set[asyncio.StreamWriter] = set()
        self.url = ""
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)

    @property
    def live_count(self) -> int:
        """The number of open streams."""
        return len(self._live)

    def shut(self) -> None:
        """Refuse connections from now on, and forget earlier ones."""
        self.open = False
        self.attempts.clear()
        self.streams.clear()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=2_000)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._started.set()
        await self._stop.wait()
        server.close()
        for writer in self._writers:
            writer.transport.abort()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.attempts.append(time.monotonic())
        try:
            if not self.open:
                raise ConnectionResetError("nobody is let in")
            there, back = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        asked = asyncio.Event()
        await asyncio.gather(self._requests(reader, back, asked), self._answers(there, writer, asked))
        self._live.discard(writer)
        self._writers -= {writer, back}

    async def _requests(self, reader: asyncio.StreamReader, back: asyncio.StreamWriter, asked: asyncio.Event) -> None:
        """Pass requests on; a connection that was used for calls may become a stream."""
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                if b"/events " in data[:300] or b"/work?" in data[:300]:
                    asked.set()
                back.write(data)
                await back.drain()
        back.transport.abort()

    async def _answers(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: asyncio.Event) -> None:
        with suppress(OSError):
            while data := await there.read(1 << 16):
                if asked.is_set() and writer not in self._live:
                    self._live.add(writer)
                    self.streams.append(time.monotonic())
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
