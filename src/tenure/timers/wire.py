"""One command to Redis and its answer, on redis-py's connections, sent once.

redis-py's own ``execute_command`` repeats after a broken connection, and says of no failure whether the command had
left. Here the two are told apart: NotSent, and NoAnswer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Protocol

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.client import PubSub
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, BusyLoadingError, ReadOnlyError, RedisError, ResponseError

from tenure.timers.settings import TimersSettings

__all__ = ["Command", "Lane", "NoAnswer", "NotSent", "SingleWire", "Wire", "client_of"]

Command = Sequence[bytes | str | int]


class NotSent(Exception):
    """The command did not leave: nothing changed."""


class NoAnswer(Exception):
    """The command may have been carried out, or not."""


class Wire(Protocol):
    """How commands reach the server that holds a key."""

    async def send(self, key: bytes, command: Command) -> Any:
        """The answer to a command, sent once. Raises NotSent, NoAnswer, or redis-py's error for an answer of Redis."""
        ...

    async def pubsub(self) -> PubSub:
        """A new subscription connection, to any server. Raises NotSent where none is known."""
        ...

    async def close(self) -> None:
        """Close the connections that were opened here."""
        ...


def client_of(url: str) -> Redis:
    """A client that tries a connection once: calls are repeated above, where it can be reported. Raises ValueError."""
    return Redis.from_url(url, retry=Retry(NoBackoff(), 0))


class SingleWire:
    """One server, a primary behind Sentinel, or a proxy: whatever the pool of the client connects to."""

    def __init__(self, redis: Redis, settings: TimersSettings) -> None:
        self._redis = redis
        self._lane = Lane(redis.connection_pool, settings)

    async def send(self, key: bytes, command: Command) -> Any:
        return await self._lane.exchange([command])

    async def pubsub(self) -> PubSub:
        return self._redis.pubsub()

    async def close(self) -> None:
        """The pool is the user's."""


class Lane:
    """The connections to one server. Calls beyond ``connections_max`` stand in line, for ``connect_ms`` at most."""

    def __init__(self, pool: ConnectionPool, settings: TimersSettings) -> None:
        self.pool = pool
        self._settings = settings
        self._places = asyncio.Semaphore(settings.connections_max)

    async def exchange(self, commands: Sequence[Command]) -> Any:
        """Send commands on one connection and return the answer to the last. Raises as ``Wire.send`` does."""
        try:
            # redis-py connects with back-off of its own, which may take minutes.
            async with asyncio.timeout(self._settings.connect_ms / 1000):
                connection = await self._connection()
        except AuthenticationError:
            raise
        except (RedisError, OSError) as error:
            raise NotSent(str(error) or _NO_CONNECTION) from error
        try:
            return await self._talk(connection, commands)
        finally:
            self._places.release()
            await self.pool.release(connection)

    async def _connection(self) -> AbstractConnection:
        cancellations = _cancellations()
        await self._places.acquire()
        try:
            connection: AbstractConnection = await self.pool.get_connection()  # type: ignore[no-untyped-call]
            if _cancellations() > cancellations:
                await self.pool.release(connection)
                raise asyncio.CancelledError
        except BaseException:
            self._places.release()
            raise
        return connection

    async def _talk(self, connection: AbstractConnection, commands: Sequence[Command]) -> Any:
        """The answer to the last command. A connection that may have something unread is never used again."""
        cancellations = _cancellations()
        try:
            async with asyncio.timeout(self._settings.answer_ms / 1000):
                answer: Any = None
                for command in commands:
                    await connection.send_command(*command, check_health=False)
                    if _cancellations() > cancellations:
                        raise asyncio.CancelledError
                    answer = await connection.read_response(disable_decoding=True)
                return answer
        except (ReadOnlyError, BusyLoadingError):
            # Another connection may lead to the server that took over.
            await connection.disconnect(nowait=True)
            raise
        except ResponseError:
            raise
        except (RedisError, OSError) as error:
            await connection.disconnect(nowait=True)
            raise NoAnswer(str(error) or "no answer within answer_ms") from error
        except BaseException:
            await connection.disconnect(nowait=True)
            raise


def _cancellations() -> int:
    """How often this task was cancelled: until Python 3.12 the ``wait_for`` in redis-py may swallow one, that of a
    timeout too, so that it has to be looked for.
    """
    task = asyncio.current_task()
    return task.cancelling() if task else 0


_NO_CONNECTION: Final = "no connection within connect_ms: down, busy, or the wrong address, password or TLS"
