"""A broker in a process of its own that does what it is told, a JSON line each: it can be stopped, starved and killed.

    python -m tests.acceptance.remote

Commands are ``{"do": name, ...arguments}``; the answer is ``{"ok": ...}`` or ``{"error": kind, "code": ...}``.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from collections.abc import Awaitable
from typing import Any

from tenure import Broker, Settings, TenureError
from tenure.contract.replies import Grant, Produced, Settled


class Remote:
    """The commands, by name."""

    def __init__(self) -> None:
        self.broker: Broker | None = None

    async def open(self, home: str, **settings: int) -> None:
        self.broker = await Broker.open(home, settings=Settings(**settings))

    async def close(self) -> None:
        assert self.broker is not None
        await self.broker.close()

    async def limit_files(self, spare: int) -> None:
        """Leave room for so many more open files."""
        used = max(map(int, os.listdir("/proc/self/fd")))  # the listing itself took the last one
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(used + spare, hard), hard))

    async def free_files(self) -> None:
        """Take the limit away again."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    async def fill(self, topic: str, size: int, count_max: int) -> int:
        """Produce until refused; give how many were acknowledged."""
        assert self.broker is not None
        for number in range(count_max):
            try:
                await self.broker.produce(topic, [b'"%s"' % (b"." * size)])
            except TenureError:
                return number
        return count_max

    async def churn(self, topic: str, first: int, count: int, size: int) -> None:
        """Produce numbered jobs one by one, then claim and ack all but the last of them."""
        assert self.broker is not None
        for number in range(first, first + count):
            await self.broker.produce(topic, [b'"%d%s"' % (number, b"." * size)])
        claim = await self.broker.claim(topic, node="w", max_count=count - 1)
        await self.broker.ack(topic, node="w", seqs=claim.seqs)

    async def count(self, topic: str) -> int:
        assert self.broker is not None
        return self.broker.topic(topic).count

    async def produce(self, topic: str, records: list[str]) -> Any:
        assert self.broker is not None
        return await self.broker.produce(topic, [record.encode() for record in records])

    async def run(self, command: dict[str, Any]) -> Any:
        name = command.pop("do")
        own = getattr(self, name, None)
        answer = own(**command) if own is not None else getattr(self.broker, name)(**command)
        return await answer if isinstance(answer, Awaitable) else answer


def plain(reply: Any) -> Any:
    match reply:
        case Grant():
            return {"seqs": reply.seqs, "lease_id": reply.lease_id, "redelivered": list(reply.redelivered.values())}
        case Settled():
            return {"count": reply.count, "skipped": reply.skipped}
        case Produced():
            return {"first_seq": reply.first_seq, "count": reply.count}
        case None | bool() | int() | str():
            return reply
        case _:
            return str(reply)


async def main() -> None:
    remote = Remote()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        try:
            answer = {"ok": plain(await remote.run(json.loads(line)))}
        except TenureError as error:
            answer = {"error": type(error).__name__, "code": error.code}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
