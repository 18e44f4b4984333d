"""Memory that was taken for a flood goes back to the machine."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest
from h2.connection import H2Connection
from h2.events import StreamEnded

from tenure.http.memory import free_bytes
from tenure.http.wire.http1.pipeline import Pipeline
from tenure.http.wire.http1.protocol import HttpProtocol
from tenure.http.wire.http1.reader import RequestReader
from tenure.http.wire.http2.protocol import Http2Protocol
from tenure.http.wire.http2.reader import Http2Reader
from tenure.http.wire.http2.writer import Http2Writer
from tests.http.test_h2 import Peer2
from tests.http.wire_support import Peer, eventually, on_both_loops, post, serving, talk

# In a process of its own: what other tests left on the heap would count, and a threshold once set stays.
_FLOOD = """
import asyncio, re, sys
from pathlib import Path
from tenure.http.memory import MemoryKeeper, free_bytes

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10

async def main():
    before = resident()
    keeper = MemoryKeeper(look_ms=10, spare_bytes_max=int(sys.argv[1]))
    keeper.start()
    flood = [bytes(5_000) for _ in range(40_000)]
    above = resident() - before
    pinned = flood[::400]  # some stay, all over the heap, so that its end is never free
    del flood
    kept = free_bytes()
    for _ in range(300):
        if int(sys.argv[1]) and resident() - before < above // 4:
            break
        await asyncio.sleep(0.01)
    keeper.stop()
    print(kept, (resident() - before) / above, len(pinned))

asyncio.run(main())
"""


def flood(spare_bytes_max: int) -> tuple[int, float]:
    """How much was free after a flood, and which part of it the process still holds."""
    command = [sys.executable, "-c", _FLOOD, str(spare_bytes_max)]
    kept, part, _ = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return int(kept), float(part)


@pytest.mark.skipif(not free_bytes(), reason="the C library of this machine does not say what it keeps")
def test_what_a_flood_took_is_given_back_unless_it_shall_be_kept():
    kept, part = flood(1 << 20)
    assert kept > 100 << 20
    assert part < 0.25
    assert flood(0)[1] > 0.75


@on_both_loops
async def test_a_connection_that_is_over_leaves_nothing_for_the_collector() -> None:
    async with serving() as (server, _):
        await talk(server, post())
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                await talk(server, post())
                async with await Peer.connect(server) as peer:
                    await peer.send(b"POST /echo HTTP/1.1\r\nhost: test\r\ncontent-length: 100\r\n\r\nhalf")
            await eventually(lambda: len(server.connections) == 0)
            assert sum(isinstance(one, HttpProtocol | RequestReader | Pipeline) for one in gc.get_objects()) == 0
        finally:
            gc.enable()


@on_both_loops
async def test_an_http_2_connection_that_is_over_leaves_nothing_for_the_collector() -> None:
    async with serving() as (server, _):
        gc.collect()
        gc.disable()
        try:
            for _ in range(5):
                async with await Peer2.connect(server) as peer:
                    await peer.request(body=b"{}")
                    await peer.until(StreamEnded)
            await eventually(lambda: len(server.connections) == 0)
            kept = gc.get_objects()
            assert not [one for one in kept if isinstance(one, Http2Protocol | Http2Reader | Http2Writer)]
            assert not [one for one in kept if isinstance(one, H2Connection) and not one.config.client_side]
        finally:
            gc.enable()
