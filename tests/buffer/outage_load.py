"""A producer under load as a process of its own: it prints its figures as JSON when everything is settled.

python -m tests.buffer.outage_load URL SECONDS BYTES_PER_S SETTINGS; each call awaits its own outcome.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from typing import Any

from tenure.buffer import BufferSettings, Producer, WriteHandle
from tenure.errors import TenureError

CALL_BYTES = 100_000


class Load:
    """Calls of `CALL_BYTES` at a rate; each entry begins with the call's number, and the rest compresses badly."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._random = os.urandom(2 * CALL_BYTES)
        self.produced = 0
        self.failures: list[str] = []
        self.held_bytes_max = 0
        self.waited_s_max = 0.0

    async def run(self, seconds: float, bytes_per_s: int) -> None:
        loop = asyncio.get_running_loop()
        began_s, answers = loop.time(), set[asyncio.Task[None]]()
        while loop.time() - began_s < seconds:
            called_s = loop.time()
            start = self.produced * 7919 % CALL_BYTES
            entry = b"%012d" % self.produced + self._random[start : start + CALL_BYTES - 12]
            handle = await self._producer.produce([entry])
            self.produced += 1
            self.waited_s_max = max(self.waited_s_max, loop.time() - called_s)
            self.held_bytes_max = max(self.held_bytes_max, self._producer.metrics.inflight_bytes)
            answer = asyncio.create_task(self._await_answer(handle))
            answers.add(answer)
            answer.add_done_callback(answers.discard)
            await asyncio.sleep(CALL_BYTES / bytes_per_s)
        await asyncio.gather(*answers)

    async def _await_answer(self, handle: WriteHandle) -> None:
        try:
            await handle.durable()
        except TenureError as error:
            self.failures.append(f"{type(error).__name__} {error.code}")


async def main(url: str, seconds: float, bytes_per_s: int, settings: dict[str, Any]) -> None:
    async with Producer(url, settings=BufferSettings(**settings)) as producer:
        await (await producer.produce([b"first"])).durable()
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print("started", flush=True)
        load = Load(producer)
        await load.run(seconds, bytes_per_s)
        figures = {
            "produced": load.produced,
            "failures": load.failures,
            "held_mib_max": load.held_bytes_max >> 20,
            "resident_mib_grown": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) >> 10,
            "longest_produce_s": round(load.waited_s_max, 1),
            "retries": producer.metrics.retries,
            "threads": len(os.listdir("/proc/self/task")),
        }
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])))
