"""A proxy that misbehaves: it stands between a client and a server, and loses what it is told to lose.

It runs on a loop of its own in a thread, so that a client that blocks can be tested as well as one that does not.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Ends", "Proxy", "proxy_to"]

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """``lose_answers``: so many answers come from the server and are not passed on, and the connection is reset.
    ``lose_requests``: so many requests arrive here and no further. ``hold_answers``: answers are kept and the
    connection stays. `stall`: nothing passes in either direction until `resume`. `refuse`: nobody gets in.
    """

    def __init__(self, port: int) -> None:
        self.target_port = port
        self.lose_answers = 0
        self.lose_requests = 0
        self.hold_answers = False
        self.lost = threading.Event()
        self.port = 0
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._thread.start()
        self._do(self._listen())

    def _do(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)  # type: ignore[arg-type]

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """Let nobody in any more; open connections are reset."""
        self._do(self._shut())

    def accept(self) -> None:
        """Let them in again, at the same port."""
        self._do(self._listen())

    def cut(self) -> None:
        """Reset every open connection."""
        self._do(self._cut())

    def stall(self) -> None:
        """Pass nothing on, and keep the connections open."""
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def resume(self) -> None:
        """Pass on what was held back, and all that follows."""
        self._loop.call_soon_threadsafe(self._flowing.set)

    async def _shut(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._cut()

    async def _cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    def stop(self) -> None:
        self._do(self._shut())
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    async def _end(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        try:
            there_reader, there = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            self._writers.discard(writer)
            writer.transport.abort()
            return
        self._writers.add(there)
        try:
            await self._relay((reader, writer), (there_reader, there))
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            for end in (writer, there):
                self._writers.discard(end)
                end.transport.abort()

    async def _relay(self, here: Ends, there: Ends) -> None:
        """Pass bytes on in both directions until one side is done."""
        await asyncio.gather(
            self._pass(here[0], there[1], answers=False),
            self._pass(there[0], here[1], answers=True),
        )

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool) -> None:
        while data := await source.read(1 << 16):
            if answers and self.lose_answers:
                self.lose_answers -= 1
                self._lose()
            if not answers and self.lose_requests:
                self.lose_requests -= 1
                self._lose()
            if answers and self.hold_answers:
                self.lost.set()
                await asyncio.sleep(3600)
            await self._flowing.wait()
            sink.write(data)
            await sink.drain()
        raise ConnectionResetError("one side is done")

    def _lose(self) -> None:
        self.lost.set()
        raise ConnectionResetError("lost on purpose")


@contextmanager
def proxy_to(port: int) -> Iterator[Proxy]:
    proxy = Proxy(port)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
