"""`RedisScripts`: run the scripts on Redis, and wait by its wake-ups."""

from __future__ import annotations

import re
from typing import Final

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import RedisError

from tenure.contract.names import describe_value
from tenure.contract.repeat import Repeat
from tenure.errors import Invalid
from tenure.timers.cluster import ClusterWire
from tenure.timers.outage_log import Outage
from tenure.timers.retry import RetryingCaller
from tenure.timers.scripts import Answer, Keys
from tenure.timers.settings import TimersSettings
from tenure.timers.wakeup import Wakeup
from tenure.timers.wire import Command, NoAnswer, NotSent, SingleWire, Wire

__all__ = ["RedisScripts"]

_PREFIX: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}", re.ASCII)


class RedisScripts:
    """Runs scripts on Redis, and keeps from each claim when the next timer of its topic is due."""

    def __init__(self, redis: Redis | RedisCluster, *, prefix: str, settings: TimersSettings, outage: Outage) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise Invalid(f"prefix must be 1 to 128 of A-Z a-z 0-9 . _ : / -; got {describe_value(prefix)}")
        self._prefix = prefix
        self._wire: Wire
        if isinstance(redis, RedisCluster):
            self._wire = ClusterWire(redis, settings)
        elif isinstance(redis, Redis):
            self._wire = SingleWire(redis, settings)
        else:
            raise Invalid(f"redis must be a redis.asyncio.Redis or RedisCluster; got {describe_value(redis)}")
        self._caller = RetryingCaller(self._wire, self._keys_of, settings, outage=outage)
        self._wakeup = Wakeup(self._wire, self._keys_of, settings)

    async def call(self, name: str, topic: str, args: Command, *, repeat: Repeat) -> Answer:
        next_due = self._wakeup.next_due(topic) if name == "claim" else None
        since = next_due.mark() if next_due else (0, 0)
        answer = await self._caller.call(name, topic, args, repeat=repeat)
        if next_due:
            next_due.learn(answer.reply[1], since=since)
        return answer

    async def wait(self, topic: str, *, timeout_ms: int | None) -> bool:
        async def head() -> int:
            return int((await self._caller.call("head", topic, (), repeat=Repeat.READ)).reply)

        return await self._wakeup.wait(topic, head=head, timeout_ms=timeout_ms)

    async def ping(self) -> bool:
        try:
            await self._wire.send(self._keys_of("ping").names[0], (b"PING",))
        except (NotSent, NoAnswer, RedisError):
            return False
        return True

    async def close(self) -> None:
        await self._wakeup.close()
        await self._wire.close()

    def _keys_of(self, topic: str) -> Keys:
        return Keys.of(self._prefix, topic)
