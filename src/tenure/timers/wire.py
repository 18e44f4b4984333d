"""Send one command to Redis, once, on redis-py's connections.

redis-py's own ``execute_command`` retries after a broken connection, and does not report whether a failed command was
sent. This module distinguishes the two: NotSent and NoAnswer.
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

__all__ = ["Command", "NoAnswer", "NotSent", "ServerConnections", "SingleWire", "Wire", "client_of"]

Command = Sequence[bytes | str | int]


class NotSent(Exception):
    """The command was not sent: nothing changed."""


class NoAnswer(Exception):
    """The command may have been carried out, or not."""


class Wire(Protocol):
    """Sends commands to the server that holds a key."""

    async def send(self, key: bytes, command: Command) -> Any:
        """Send a command once and return its answer. Raises NotSent, NoAnswer, or redis-py's error for
        an error reply.
        """
        ...

    async def pubsub(self) -> PubSub:
        """Return a new subscription connection, to any server. Raises NotSent where none is known."""
        ...

    async def close(self) -> None:
        """Close the connections that were opened here."""
        ...


def client_of(url: str) -> Redis:
    """Return a client that tries a connection once: calls are retried above, where an outage is reported. Raises
    ValueError.
    """
    return Redis.from_url(url, retry=Retry(NoBackoff(), 0))


class SingleWire:
    """The wire to one server, a primary behind Sentinel, or a proxy: whatever the client's pool connects to."""

    def __init__(self, redis: Redis, settings: TimersSettings) -> None:
        self._redis = redis
        self._server = ServerConnections(redis.connection_pool, settings)

    async def send(self, key: bytes, command: Command) -> Any:
        return await self._server.exchange([command])

    async def pubsub(self) -> PubSub:
        return self._redis.pubsub()

    async def close(self) -> None:
        """Do nothing: the pool belongs to the user."""


class ServerConnections:
    """The connections to one server. Calls beyond ``connections_max`` wait in line, for ``connect_ms`` at most."""

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
        """Send commands and return the answer to the last. A connection with a possible unread answer is not used
        again.
        """
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
    """Return how often this task was cancelled: before Python 3.12 the ``wait_for`` in redis-py may swallow a
    cancellation, also that of a timeout, so the caller compares the count.
    """
    task = asyncio.current_task()
    return task.cancelling() if task else 0


_NO_CONNECTION: Final = "no connection within connect_ms: down, busy, or the wrong address, password or TLS"
