"""The two pools of connections: what is closed stays closed, and nobody waits for what cannot come."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tenure.client import WireError
from tenure.client.transport.loop_pool import LoopPool
from tenure.client.transport.socket_pool import SocketPool


class Fake:
    """A connection of either kind, which notes what was done to it."""

    def __init__(self) -> None:
        self.is_open = True
        self.interrupted = False
        self.used_s = float("inf")

    def reusable(self) -> bool:
        return self.is_open

    def interrupt(self) -> None:
        self.interrupted = True

    def close(self) -> None:
        self.is_open = False

    abort = close


def socket_pool(places: int) -> SocketPool[Fake]:
    return SocketPool(places, setting="a setting")


def loop_pool(places: int) -> Any:
    return LoopPool(places, setting="a setting")


def used(pool: SocketPool[Fake]) -> Fake:
    """A connection that was made for a place."""
    assert pool.get(0) is None
    connection = Fake()
    pool.use(connection)
    return connection


async def used_on_a_loop(pool: Any) -> Fake:
    assert await pool.take_place(0) is None
    connection = Fake()
    pool.use(connection)
    return connection


def test_a_connection_that_comes_back_to_a_closed_pool_of_threads_is_closed() -> None:
    pool = socket_pool(2)
    late, idle = used(pool), used(pool)
    pool.put(idle)
    pool.close()
    assert (idle.is_open, late.is_open, late.interrupted) == (False, True, True), "its thread closes it"
    pool.put(late)
    assert not late.is_open


async def test_a_pool_on_a_loop_closes_the_connections_in_use_itself() -> None:
    pool = loop_pool(2)
    late, idle = await used_on_a_loop(pool), await used_on_a_loop(pool)
    pool.put(idle)
    await pool.close()
    assert (idle.is_open, late.is_open) == (False, False)
    pool.put(late)
    assert pool.take_idle(1) is None


async def test_a_connection_that_was_made_while_its_pool_was_closed_is_closed_and_not_used() -> None:
    threads, loop = socket_pool(1), loop_pool(1)
    assert (threads.get(0), await loop.take_place(0)) == (None, None)
    threads.close()
    await loop.close()
    for pool in (threads, loop):
        connection: Any = Fake()
        with pytest.raises(WireError) as caught:
            pool.use(connection)
        assert (caught.value.closed, caught.value.sent, connection.is_open) == (True, False, False)


def test_a_pool_that_a_signal_handler_closes_while_a_connection_is_taken_gives_out_none() -> None:
    pool = socket_pool(1)
    connection = used(pool)
    pool.put(connection)

    class Interrupted(list[Any]):
        def pop(self, *_: Any) -> Any:
            taken = super().pop()
            pool.close()
            return taken

    pool._idle = Interrupted(pool._idle)
    with pytest.raises(WireError) as caught:
        pool.get(0)
    assert (caught.value.closed, connection.is_open) == (True, False)


def test_a_thread_that_waits_for_a_connection_is_refused_when_the_pool_closes() -> None:
    pool = socket_pool(1)
    used(pool)
    told: list[WireError] = []

    def wait() -> None:
        with pytest.raises(WireError) as caught:
            pool.get(600)
        told.append(caught.value)

    waiting = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
    for thread in waiting:
        thread.start()
    while len(pool._changed._waiters) < 3:  # type: ignore[attr-defined]
        pass
    pool.close()
    for thread in waiting:
        thread.join(30)
    assert [(error.closed, error.sent) for error in told] == [(True, False)] * 3


async def test_a_task_that_waits_for_a_connection_is_refused_when_the_pool_closes() -> None:
    pool = loop_pool(1)
    connection = await used_on_a_loop(pool)
    waiting = [asyncio.ensure_future(pool.take_place(600)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await pool.close()
    pool.put(connection)
    told: list[Any] = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 30)
    assert isinstance(told[0], asyncio.CancelledError)
    assert [(error.closed, error.sent) for error in told[1:]] == [(True, False)] * 2


async def test_a_full_pool_says_which_setting_would_help() -> None:
    threads, loop = socket_pool(1), loop_pool(1)
    used(threads)
    await used_on_a_loop(loop)
    with pytest.raises(WireError, match="raise a setting") as of_threads:
        threads.get(0)
    with pytest.raises(WireError, match="raise a setting") as of_loop:
        await loop.take_place(0)
    assert of_threads.value.busy
    assert of_loop.value.busy
