"""Something between a worker and its broker that can go deaf."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Self

from tests.kit.restartable_server import PATIENCE_S

__all__ = ["Proxy"]


class Proxy:
    """Passes bytes on, until it is told to swallow those of work streams: then both ends stay open, and neither hears
    from the other again. With a ``stream_age_s`` it cuts each work stream once it is so old; ``cut_count`` counts them.
    With ``loses_ends`` no side of a work stream hears that the other one has ended.
    """

    def __init__(self, port: int, *, stream_age_s: float = 0, loses_ends: bool = False) -> None:
        self._port = port
        self._loses_ends = loses_ends
        self._stream_age_s = stream_age_s
        self.cut_count = 0
        self.swallows = False
        self.url = ""
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE_S)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._started.set()
        await self._stop.wait()
        server.close()
        for writer in self._writers:
            writer.transport.abort()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        is_stream = asyncio.Event()
        self._writers |= {writer, back}
        cutting = asyncio.create_task(self._cut(is_stream, writer, back))
        await asyncio.gather(self._pass(reader, back, is_stream), self._pass(there, writer, is_stream))
        cutting.cancel()
        for each in (writer, back):
            each.close()
            with suppress(OSError):
                await each.wait_closed()
        self._writers -= {writer, back}

    async def _cut(self, is_stream: asyncio.Event, *ends: asyncio.StreamWriter) -> None:
        """End a work stream at its age, as a proxy does that limits how old a connection may be."""
        await is_stream.wait()
        if self._stream_age_s:
            await asyncio.sleep(self._stream_age_s)
            self.cut_count += 1
            for end in ends:
                end.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_stream: asyncio.Event) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                if b"/work?" in data[:200]:
                    is_stream.set()
                if not (self.swallows and is_stream.is_set()):
                    writer.write(data)
                    await writer.drain()
            if not ((self.swallows or self._loses_ends) and is_stream.is_set()):
                writer.close()
