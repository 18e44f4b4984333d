"""taskiq on Redis streams."""

from __future__ import annotations

import asyncio
import sys

from taskiq_redis import RedisStreamBroker

from bench.peers.tasks.marks import BODY, PORT, QUEUE, handled

CLIENT = "taskiq"
NOTES = "taskiq worker --workers 1 --max-async-tasks 100 --ack-type when_executed, RedisStreamBroker, no results"

broker = RedisStreamBroker(f"redis://127.0.0.1:{PORT}/0", queue_name=QUEUE, consumer_id="0")
_loop = asyncio.new_event_loop()
_AT_ONCE = 100


@broker.task(task_name="handle")
async def handle(sent_ns: int, body: str) -> None:
    """Leave a mark."""
    handled(sent_ns)


def worker() -> list[str]:
    """Return the command of the worker process."""
    command = [sys.executable, "-m", "taskiq", "worker", f"{__name__}:broker", "--workers", "1"]
    return [*command, "--max-async-tasks", "100", "--ack-type", "when_executed", "--log-level", "WARNING"]


def prepare() -> None:
    """Create the group, from the start of the stream."""
    _loop.run_until_complete(broker.startup())


def put_many(count: int) -> None:
    """Queue tasks."""
    for start in range(0, count, _AT_ONCE):
        _loop.run_until_complete(_put_at_once(min(_AT_ONCE, count - start)))


async def _put_at_once(count: int) -> None:
    await asyncio.gather(*(handle.kiq(0, BODY) for _ in range(count)))


def put(sent_ns: int) -> None:
    """Queue one task."""
    _loop.run_until_complete(handle.kiq(sent_ns, BODY))
