"""`ClusterWire`: the wire to a Redis Cluster, with the slot map read from its nodes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Any, Final

from redis.asyncio import ConnectionPool, Redis, RedisCluster
from redis.asyncio.client import PubSub
from redis.crc import key_slot
from redis.exceptions import AskError, ClusterDownError, MovedError, ReadOnlyError, ResponseError

from tenure.timers.settings import TimersSettings
from tenure.timers.wire import Command, NoAnswer, NotSent, ServerConnections

__all__ = ["ClusterWire"]

_HOPS_MAX: Final = 5
"""How many MOVED and ASK answers one command follows; a cluster at rest needs one."""

_NODES_MAX: Final = 1_000

_Address = tuple[str, int]


class ClusterWire:
    """Sends commands to the node that holds their key. MOVED and ASK are followed; after a failed node the map is read
    again.

    Only the connection parameters (address, password, TLS) of the given client are used: its own calls would retry.
    """

    def __init__(self, redis: RedisCluster, settings: TimersSettings) -> None:
        self._redis = redis
        self._settings = settings
        self._slots: dict[int, _Address] = {}
        self._servers: dict[_Address, ServerConnections] = {}
        self._looking: asyncio.Task[None] | None = None

    async def send(self, key: bytes, command: Command) -> Any:
        slot = key_slot(key)
        address = await self._home(slot)
        before: tuple[Command, ...] = ()
        for _ in range(_HOPS_MAX):
            try:
                return await self._server(address).exchange([*before, command])
            except MovedError as moved:
                address, before = self._redirect(moved, address), ()
                self._slots[slot] = address
            except AskError as ask:
                address, before = self._redirect(ask, address), (("ASKING",),)
            except (NotSent, NoAnswer, ReadOnlyError, ClusterDownError):
                self._slots.clear()
                raise
        raise NotSent(f"the cluster sent the command on {_HOPS_MAX} times: it is being moved about")

    async def pubsub(self) -> PubSub:
        if not self._servers:
            await self._look()
        addresses = list(self._servers)
        if not addresses:
            raise NotSent("no node of the cluster is known")
        pool = self._new_pool(random.choice(addresses), connections_max=1)
        client = Redis.from_pool(pool)  # closes the pool with itself
        return _OwnedPubSub(client, pool)

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        for server in self._servers.values():
            await server.pool.disconnect()
        self._servers.clear()

    async def _home(self, slot: int) -> _Address:
        """Return the node of a slot. Raises NotSent where no node serves it."""
        if slot not in self._slots:
            await self._look()
        if slot not in self._slots:
            raise NotSent(f"no node of the cluster serves slot {slot}")
        return self._slots[slot]

    async def _look(self) -> None:
        """Read the slot map, once for all concurrent callers."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._read_map())
        await asyncio.shield(self._looking)

    async def _read_map(self) -> None:
        why = "no node was given"
        for address in self._candidates():
            try:
                shards = await self._server(address).exchange([("CLUSTER", "SLOTS")])
            except (NotSent, NoAnswer, ResponseError) as error:
                why = str(error)
                continue
            self._learn(shards, address)
            return
        raise NotSent(f"no node of the cluster answers: {why}")

    def _learn(self, shards: Iterable[Any], asked: _Address) -> None:
        slots: dict[int, _Address] = {}
        for first, last, primary, *_ in shards:
            # A node that does not know its own host name leaves it empty: it is the one that was asked.
            address = (_text(primary[0]) or asked[0], int(primary[1]))
            slots.update(dict.fromkeys(range(first, last + 1), address))
        self._slots = slots
        for address in set(slots.values()):
            self._server(address)

    def _candidates(self) -> list[_Address]:
        """Return the nodes that may know the map: known ones in random order, then those of the given client."""
        met = list(self._servers)
        random.shuffle(met)
        manager = self._redis.nodes_manager
        given = [*manager.nodes_cache.values(), *manager.startup_nodes.values()]
        return list(dict.fromkeys([*met, *((node.host, int(node.port)) for node in given)]))

    def _redirect(self, error: AskError, asked: _Address) -> _Address:
        return (error.host or asked[0], int(error.port))

    def _server(self, address: _Address) -> ServerConnections:
        server = self._servers.get(address)
        if server is None:
            if len(self._servers) >= _NODES_MAX:
                raise NotSent(f"more than {_NODES_MAX} nodes were met")
            pool = self._new_pool(address, connections_max=self._settings.connections_max)
            server = self._servers[address] = ServerConnections(pool, self._settings)
        return server

    def _new_pool(self, address: _Address, *, connections_max: int) -> ConnectionPool:
        """Return a pool of connections to a node, with the parameters of the user's client."""
        like = next(iter(self._redis.nodes_manager.startup_nodes.values()))
        how = {**like.connection_kwargs, "host": address[0], "port": address[1]}
        return ConnectionPool(connection_class=like.connection_class, max_connections=connections_max, **how)


class _OwnedPubSub(PubSub):
    """A subscription that closes the client it was made with."""

    def __init__(self, client: Redis, pool: ConnectionPool) -> None:
        super().__init__(pool)
        self._client = client

    async def aclose(self) -> None:
        await super().aclose()  # type: ignore[no-untyped-call]
        await self._client.aclose()


def _text(value: bytes | str | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""
