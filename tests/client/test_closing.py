"""Closing a stream that somebody reads: from a task, from another thread, and in a signal handler."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest

from tenure.client import ClientSettings
from tenure.client.transport.blocking import SocketStream
from tests.client.both_clients import Both, make_client
from tests.kit.members import members, until
from tests.kit.server import Running

STREAMS = ["work", "watch", "events"]


class Interrupted:
    """A connection and its pool. In the middle of a read the stream is closed in the same thread, as by a handler of
    signals.
    """

    def __init__(self) -> None:
        self.stream: Any = None
        self.calls: list[str] = []

    def read_some(self, *, timeout_s: float) -> bytes:
        self.stream.close()
        self.calls.append("read")
        return b""

    def interrupt(self) -> None:
        self.calls.append("interrupt")

    def drop(self, connection: Interrupted) -> None:
        self.calls.append("close and free the place")


def test_a_blocking_stream_is_closed_in_the_middle_of_its_own_read() -> None:
    opened: Any = Interrupted()
    opened.stream = SocketStream(opened, opened, idle_s=1)
    reading = threading.Thread(target=opened.stream.read, daemon=True)
    reading.start()
    reading.join(30)
    assert opened.calls == ["interrupt", "read", "close and free the place"]


@pytest.mark.parametrize("stream", STREAMS)
async def test_one_close_ends_a_stream_for_whoever_waits_on_it(client: Both, name: str, stream: str) -> None:
    await client.put_topic(name, type="queue")
    feed = Both(getattr(client.inner, stream)(name))
    waiting = asyncio.ensure_future(feed.drain())
    while not feed.inner.source.line.is_open:
        await asyncio.sleep(0)
    await feed.close()
    for ended in (waiting, feed.next()):
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(ended, 30)


async def test_a_closed_client_ends_what_is_under_way_and_sends_nothing_more(kind: str) -> None:
    """More calls than connections: some wait for an answer, the others for a connection."""
    settings = ClientSettings(connections_max=1, streams_max=1, answer_ms=600_000, backoff_min_ms=1, backoff_max_ms=1)
    with members(1) as (server,):
        server.leads(1).stop()
        client = make_client(kind, server.url, settings=settings)
        calls = [asyncio.ensure_future(client.health()) for _ in range(4)]
        await until(lambda: len(server.asked) == (1 if kind == "blocking" else 2))
        sent = len(server.asked)
        try:
            await client.close()
            told = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 15)
        finally:
            server.go_on()
        assert [getattr(error, "code", error) for error in told] == ["client_closed"] * 4
        await until(lambda: not server._writers)
        assert len(server.asked) == sent


HANDLING = """
import os, signal, sys, threading
from tenure.client import Client

client = Client(sys.argv[1])
client.put_topic(sys.argv[2], type="queue")
feed = {"work": client.work, "watch": client.watch, "events": client.events}[sys.argv[3]](sys.argv[2])
signal.signal(signal.SIGTERM, lambda *_: feed.close())
signal.alarm(30)

def interrupt():
    while not feed.source.line.is_open:
        pass
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=interrupt).start()
for _ in feed:
    pass
print("ended", len(client._wire._endpoints.first.wire._streams._idle) == client.settings.streams_max)
"""


@pytest.mark.parametrize("stream", STREAMS)
def test_a_stream_that_is_closed_in_a_signal_handler_ends(real: Running, name: str, stream: str) -> None:
    command = [sys.executable, "-c", HANDLING, real.url, name, stream]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.splitlines() == ["ended True"]
