"""`Member`: a small server on a real socket that leads or follows as a test says, before a real server or alone."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, Self

from tests.kit.server import Running

__all__ = ["Asked", "Member", "members", "until"]

OK = b'{"topic":"t","first_seq":1,"last_seq":1,"count":1,"status":"ok","redriven":0,"claimed":[]}'


class Asked(NamedTuple):
    """A request that came: its path, the key that came with it, and its body."""

    path: str
    key: str
    body: bytes


class Member:
    """One of several servers. ``asked`` are the requests that came, ``looks`` counts those for GET /v0/cluster.

    A leader answers every call with a fixed success, or by the server ``behind`` it; a standby names ``leader``. After
    `stop` it takes connections and bytes, and does and says nothing, as a process that got SIGSTOP. After `kill` it
    refuses connections.
    """

    def __init__(self, *, behind: Running | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.role = "standby"
        self.leader = ""
        self.epoch = 1
        self.asked: list[Asked] = []
        self.looks = 0
        self.answers: list[tuple[int, bytes] | None] = []
        """What the next calls are answered with, before anything else; None resets the connection."""
        self._behind = behind
        self._tls = tls
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self._running = asyncio.Event()
        self._running.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self._port}"

    def leads(self, epoch: int) -> Self:
        """Lead from now on."""
        self.role, self.leader, self.epoch = "leader", self.url, epoch
        return self

    def follows(self, leader: Member | str, epoch: int = 1) -> Self:
        """Name this leader from now on."""
        self.role, self.epoch = "standby", epoch
        self.leader = leader if isinstance(leader, str) else leader.url
        return self

    def start(self) -> None:
        """Take connections, at the same port as before."""
        if not self._thread.is_alive():
            self._thread.start()
        self._do(self._listen())

    def stop(self) -> None:
        """Say nothing more, and keep connections open."""
        self._loop.call_soon_threadsafe(self._running.clear)

    def go_on(self) -> None:
        """Answer what came meanwhile, and all that follows."""
        self._loop.call_soon_threadsafe(self._running.set)

    def kill(self) -> None:
        """Reset every connection and refuse others."""
        self._do(self._close())

    def end(self) -> None:
        """Stop for good."""
        self._do(self._close())
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def _do(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)  # type: ignore[arg-type]

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, ssl=self._tls)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()

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
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._answer(reader, writer):
                pass
        self._writers.discard(writer)
        writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether another may follow on the connection."""
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:-2])
        body = await reader.readexactly(int(fields.get("content-length", 0)))
        path = head.split()[1].decode()
        if path == "/v0/cluster":
            self.looks += 1
            await self._running.wait()
            about = {"role": self.role, "url": self.url, "leader": self.leader, "epoch": self.epoch}
            return await _say(writer, 200, json.dumps(about).encode())
        self.asked.append(Asked(path, fields.get("authorization", "").removeprefix("Bearer "), body))
        await self._running.wait()
        if self.answers:
            answer = self.answers.pop(0)
            return answer is not None and await _say(writer, *answer)
        if self.role != "leader":
            detail = {"leader": self.leader, "epoch": self.epoch}
            refusal = {"error": {"code": "not_leader", "message": "another server leads", "detail": detail}}
            return await _say(writer, 421, json.dumps(refusal).encode())
        if self._behind is None:
            return await _say(writer, 200, OK)
        await self._pass_on(head + body, writer)
        return False

    async def _pass_on(self, request: bytes, writer: asyncio.StreamWriter) -> None:
        """Let the real server answer, and pass its bytes on while this member runs."""
        assert self._behind is not None
        port = int(self._behind.url.rpartition(":")[2])
        there, back = await asyncio.open_connection("127.0.0.1", port)
        self._writers.add(back)
        try:
            back.write(request.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))
            while data := await there.read(1 << 16):
                await self._running.wait()
                writer.write(data)
                await writer.drain()
        finally:
            self._writers.discard(back)
            back.transport.abort()


async def _say(writer: asyncio.StreamWriter, status: int, body: bytes) -> bool:
    writer.write(b"HTTP/1.1 %d Said\r\ncontent-length: %d\r\n\r\n" % (status, len(body)) + body)
    await writer.drain()
    return True


@contextmanager
def members(count: int, *, behind: Running | None = None, tls: ssl.SSLContext | None = None) -> Iterator[list[Member]]:
    """That many members, which all follow nobody."""
    made = [Member(behind=behind, tls=tls) for _ in range(count)]
    try:
        for member in made:
            member.start()
        yield made
    finally:
        for member in made:
            member.end()


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)
