"""Many clients or workers in one process, each with connections of its own, until standard input ends.

python -m tests.client.many_clients KIND URL COUNT TOPIC
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from tenure import App, AsyncClient
from tenure.worker.runtime.worker import Worker

__all__: list[str] = []


async def follow(url: str, topic: str) -> None:
    """A client that follows what happens to a topic's jobs, whatever happens to the line."""
    async with AsyncClient(url) as client, client.events(topic) as events:
        async for _ in events:
            pass


async def work(url: str, topic: str) -> None:
    app = App(url)

    @app.task(topic)
    async def handle() -> None: ...

    await Worker(app).run()


async def main(kind: str, url: str, count: str, topic: str) -> None:
    what = {"clients": follow, "workers": work}[kind]
    tasks = [asyncio.create_task(what(url, topic)) for _ in range(int(count))]
    reading = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    await asyncio.wait((*tasks, reading), return_when=asyncio.FIRST_COMPLETED)
    assert not any(task.done() for task in tasks), [task.exception() for task in tasks if task.done()]
    for task in tasks:
        task.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
