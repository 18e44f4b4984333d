"""The wire to a Redis Cluster: which node holds a slot, learned from the nodes themselves."""

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
from tenure.timers.wire import Command, Lane, NoAnswer, NotSent

__all__ = ["ClusterWire"]

_HOPS_MAX: Final = 5
"""How many MOVED and ASK answers one command follows; a cluster at rest needs one."""

_NODES_MAX: Final = 1_000

_Address = tuple[str, int]


class ClusterWire:
    """Commands go to the node that holds their key. MOVED and ASK are followed; a node that fails makes us look anew.

    Of the client given only the way to connect (address, password, TLS) is used: its own calls repeat by themselves.
    """

    def __init__(self, redis: RedisCluster, settings: TimersSettings) -> None:
        self._redis = redis
        self._settings = settings
        self._slots: dict[int, _Address] = {}
        self._lanes: dict[_Address, Lane] = {}
        self._looking: asyncio.Task[None] | None = None

    async def send(self, key: bytes, command: Command) -> Any:
        slot = key_slot(key)
        address = await self._home(slot)
        before: tuple[Command, ...] = ()
        for _ in range(_HOPS_MAX):
            try:
                return await self._lane(address).exchange([*before, command])
            except MovedError as moved:
                address, before = self._told(moved, address), ()
                self._slots[slot] = address
            except AskError as ask:
                address, before = self._told(ask, address), (("ASKING",),)
            except (NotSent, NoAnswer, ReadOnlyError, ClusterDownError):
                self._slots.clear()
                raise
        raise NotSent(f"the cluster sent the command on {_HOPS_MAX} times: it is being moved about")

    async def pubsub(self) -> PubSub:
        if not self._lanes:
            await self._look()
        addresses = list(self._lanes)
        if not addresses:
            raise NotSent("no node of the cluster is known")
        pool = self._new_pool(random.choice(addresses), connections_max=1)
        client = Redis.from_pool(pool)  # closes the pool with itself
        return _OwnedPubSub(client, pool)

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        for lane in self._lanes.values():
            await lane.pool.disconnect()
        self._lanes.clear()

    async def _home(self, slot: int) -> _Address:
        """Where a slot lives. Raises NotSent where nobody tells."""
        if slot not in self._slots:
            await self._look()
        if slot not in self._slots:
            raise NotSent(f"no node of the cluster serves slot {slot}")
        return self._slots[slot]

    async def _look(self) -> None:
        """Read the map, once for all who ask at the same time."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._read_map())
        await asyncio.shield(self._looking)

    async def _read_map(self) -> None:
        why = "no node was given"
        for address in self._candidates():
            try:
                shards = await self._lane(address).exchange([("CLUSTER", "SLOTS")])
            except (NotSent, NoAnswer, ResponseError) as error:
                why = str(error)
                continue
            self._learn(shards, address)
            return
        raise NotSent(f"no node of the cluster answers: {why}")

    def _learn(self, shards: Iterable[Any], asked: _Address) -> None:
        slots: dict[int, _Address] = {}
        for first, last, primary, *_ in shards:
            # A node that does not know its own name leaves it empty: it is the one that was asked.
            address = (_text(primary[0]) or asked[0], int(primary[1]))
            slots.update(dict.fromkeys(range(first, last + 1), address))
        self._slots = slots
        for address in set(slots.values()):
            self._lane(address)

    def _candidates(self) -> list[_Address]:
        """Everybody who may know the map: those met so far in any order, then those the client was given."""
        met = list(self._lanes)
        random.shuffle(met)
        manager = self._redis.nodes_manager
        given = [*manager.nodes_cache.values(), *manager.startup_nodes.values()]
        return list(dict.fromkeys([*met, *((node.host, int(node.port)) for node in given)]))

    def _told(self, error: AskError, asked: _Address) -> _Address:
        return (error.host or asked[0], int(error.port))

    def _lane(self, address: _Address) -> Lane:
        lane = self._lanes.get(address)
        if lane is None:
            if len(self._lanes) >= _NODES_MAX:
                raise NotSent(f"more than {_NODES_MAX} nodes were met")
            pool = self._new_pool(address, connections_max=self._settings.connections_max)
            lane = self._lanes[address] = Lane(pool, self._settings)
        return lane

    def _new_pool(self, address: _Address, *, connections_max: int) -> ConnectionPool:
        """Connections to a node, made as the user's client makes them."""
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
