"""A proxy that loses answers: the command arrives, what comes back does not."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType


class Proxy:
    """Stands in front of a Redis server on loopback. ``lose`` answers to scripts are swallowed and their line is cut.

    What happens between the command and the cut can be slipped in with ``meanwhile``.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.lose = 0
        self.lost = asyncio.Event()
        self.resume = asyncio.Event()
        self.resume.set()

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None):
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await self.resume.wait()
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            with suppress(OSError):
                await self._relay(reader, writer, up_reader, up_writer)
        finally:
            for one in (writer, up_writer):
                one.close()

    async def _relay(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        up_reader: asyncio.StreamReader,
        up_writer: asyncio.StreamWriter,
    ) -> None:
        """Commands and answers in turn, as a client without pipelining sends them."""
        while command := await reader.read(1 << 20):
            up_writer.write(command)
            answer = await up_reader.read(1 << 20)
            if self.lose and b"EVAL" in command and not answer.startswith(b"-NOSCRIPT"):
                self.lose -= 1
                self.resume.clear()
                self.lost.set()
                return
            writer.write(answer)
