"""Open the backends of a worker's tasks: the broker for queues, Redis for timers.

Only backends that a task needs are opened: an app with timers alone needs no broker.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.worker.backends.backend import Backend
from tenure.worker.backends.queue import QueueBackend
from tenure.worker.runtime.handler import Handler
from tenure.worker.runtime.link import Link
from tenure.worker.timer import TimerTask

if TYPE_CHECKING:
    from tenure.client.client import AsyncClient
    from tenure.worker.app import App

__all__ = ["OpenBackend", "open_backends"]


class OpenBackend(msgspec.Struct, frozen=True):
    """A connected broker or Redis, and a `Backend` per task, which share a ``link``. ``client`` is set for a broker,
    which also keeps schedules and takes the hello.
    """

    tasks: list[tuple[Handler[Any], Backend]]
    link: Link
    client: AsyncClient | None = None


@asynccontextmanager
async def open_backends(
    app: App, tasks: Sequence[Handler[Any]], *, push: bool, group: str | None = None, suspects: bool = False
) -> AsyncIterator[list[OpenBackend]]:
    """Open the backends that ``tasks`` need, and close them at the end.

    Handlers put and schedule through the app's own clients, so that they cannot delay heartbeats and acks. Each task
    has a connection of its own that waits for jobs, so that no task delays another.
    """
    timers = [task for task in tasks if isinstance(task, TimerTask)]
    queues = [task for task in tasks if not isinstance(task, TimerTask)]
    async with AsyncExitStack() as stack:
        opened: list[OpenBackend] = []
        if queues:
            client = await stack.enter_async_context(app.new_client(more_streams=len(queues)))
            link = Link(app.url)
            backends = [
                QueueBackend(client, task.options, link=link, push=push, group=group, suspects=suspects)
                for task in queues
            ]
            opened.append(OpenBackend(list(zip(queues, backends, strict=True)), link, client))
        if timers:
            opened.append(_redis(app, stack, timers))
        yield opened


def _redis(app: App, stack: AsyncExitStack, tasks: Sequence[TimerTask[Any]]) -> OpenBackend:
    from tenure.worker.backends.redis import RedisBackend

    timers = app.new_timers()
    stack.push_async_callback(timers.close)
    link = Link(timers.address, "Redis")
    return OpenBackend(
        [(task, RedisBackend(timers.timers, task.options, link=link, node=timers.node)) for task in tasks], link
    )
