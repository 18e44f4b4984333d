"""Connections are accepted for a time, and not by number: those that wait do not wait for as many turns of the loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count, pairwise

from tenure.http.server import bind
from tenure.http.wire.connections import Connections
from tenure.http.wire.limits import WireLimits
from tenure.http.wire.listener import Listener
from tests.http.wire_support import Welcome, eventually, on_both_loops

WAITING = 60
STEP_S = 1 / 8192
"""What the clock of these tests moves on whenever it is read; a number that sums without a rest."""


@asynccontextmanager
async def accepting(**limits: int) -> AsyncIterator[tuple[Connections, list[int]]]:
    """Accept connections that wait already, and note after each turn of the loop how many have been."""
    loop, ticks, peers = asyncio.get_running_loop(), count(), list[socket.socket]()
    registry = Connections(WireLimits(**limits))
    [bound] = bind("127.0.0.1", 0, limits=registry.limits)
    bound.listen(WAITING)
    for _ in range(WAITING):
        peers.append(socket.create_connection(bound.getsockname()))
    clock = map(STEP_S.__mul__, ticks).__next__
    listener = Listener(bound, admit=Welcome(print), registry=registry, ssl_context=None, clock=clock)
    counts = [0]

    def look() -> None:
        counts.append(registry.counts.accepted)
        if counts[-1] < WAITING:
            loop.call_soon(look)

    loop.call_soon(look)
    try:
        yield registry, counts
    finally:
        listener.close()
        for peer in peers:
            peer.close()
        await eventually(lambda: len(registry) == 0)


def most_at_once(counts: list[int]) -> int:
    return max(after - before for before, after in pairwise(counts))


@on_both_loops
async def test_a_turn_accepts_until_its_time_is_over_and_the_rest_in_the_next_ones() -> None:
    async with accepting(accept_ms=1) as (_, counts):
        await eventually(lambda: counts[-1] == WAITING)
        assert most_at_once(counts) == 9  # the first reading of the clock at or after 1 ms, in steps of an eighth


@on_both_loops
async def test_all_that_wait_are_accepted_in_one_turn_where_there_is_time() -> None:
    async with accepting(accept_ms=1_000) as (_, counts):
        await eventually(lambda: counts[-1] == WAITING)
        assert most_at_once(counts) == WAITING


@on_both_loops
async def test_a_full_server_replaces_few_at_once_because_those_keep_their_descriptors_until_the_next_turn() -> None:
    async with accepting(accept_ms=1_000, connections_max=20) as (registry, counts):
        most = 0
        while counts[-1] < WAITING:
            await asyncio.sleep(0)
            most = max(most, len(registry))
        assert most <= 20 + 4 * 3  # an accepted one is cut in a turn, closed in the next, and gone in the one after
        assert registry.counts.silent_cut == WAITING - 20
        await eventually(lambda: len(registry) == 20)  # also those that were cut while their transport was made
