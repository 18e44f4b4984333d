"""The time that a request may take, at a server that reads what it is sent and answers when the test wants."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from tenure.buffer import BufferSettings, Producer
from tenure.objects.request_limits import RequestLimits
from tenure.objects.store import ObjectStore, OutcomeUnknown, open_store

BODY = b"x" * 1_000_000
WITHIN_S = 60
ANSWER = b'HTTP/1.1 200 OK\r\nETag: "a"\r\nContent-Length: 0\r\n\r\n'


class Server:
    """Accepts every connection; answers each after ``answer_after_s``, or never."""

    def __init__(self) -> None:
        self.answer_after_s: float | None = None
        self.ended = asyncio.Semaphore(0)
        self.port = 0
        self._serving: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving[asyncio.current_task()] = writer
        if self.answer_after_s is not None:
            asyncio.get_running_loop().call_later(self.answer_after_s, writer.write, ANSWER)
        with suppress(ConnectionError):
            while await reader.read(1 << 16):
                pass
        self.ended.release()
        writer.transport.abort()

    async def end(self) -> None:
        for writer in self._serving.values():
            writer.transport.abort()
        await asyncio.gather(*(task for task in self._serving if task is not None))

    def url(self) -> str:
        return f"s3://bucket/prefix?endpoint=http://127.0.0.1:{self.port}&skip_signature=true&region=here"

    def store(self, timeout_ms: int, bytes_per_s_min: int) -> ObjectStore:
        return open_store(self.url(), request_timeout_ms=timeout_ms, request_bytes_per_s_min=bytes_per_s_min)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    yield server
    listening.close()
    await server.end()


async def test_a_request_without_an_answer_is_cut_off_with_its_connection(server: Server):
    """Naive: the attempt goes on behind the caller's back, and holds a connection and the batch."""
    store = server.store(200, 1 << 40)
    for call in (store.put_new("a", BODY), store.head("a"), store.get("a", limit_bytes=10), store.delete(["a"])):
        with pytest.raises(OutcomeUnknown, match="no answer within"):
            await call
        await asyncio.wait_for(server.ended.acquire(), WITHIN_S)
    with pytest.raises(OutcomeUnknown, match="no answer within"):
        [info async for info in store.list("data/")]


async def test_an_upload_gets_the_time_that_its_bytes_take_on_a_slow_uplink(server: Server):
    """Naive: one time for all requests; a large batch fails at each attempt, for ever."""
    server.answer_after_s = 1
    with pytest.raises(OutcomeUnknown):
        await server.store(200, 1 << 40).put_new("a", BODY)
    await server.store(200, len(BODY) // 50).put_new("a", BODY)


def test_the_defaults_let_the_largest_batch_pass_four_at_once_on_a_megabyte_a_second():
    settings = BufferSettings()
    limits = RequestLimits(settings.request_timeout_ms, settings.request_bytes_per_s_min)
    assert limits.seconds(settings.call_bytes_max) > settings.uploads_max * settings.call_bytes_max / 1_000_000
    assert limits.seconds() < settings.delivery_timeout_ms / 1000


async def test_a_producer_that_is_given_a_url_sets_the_limits_of_its_requests(server: Server):
    settings = BufferSettings(request_timeout_ms=100, call_attempts_max=1)
    with pytest.raises(OutcomeUnknown, match="no answer within"):
        await Producer.open(server.url(), settings=settings)


def test_a_pickled_store_keeps_its_limits():
    store = open_store("s3://bucket/prefix", request_timeout_ms=5, request_bytes_per_s_min=7)
    again = pickle.loads(pickle.dumps(store))
    assert (again.url, again._limits) == (store.url, RequestLimits(5, 7))
