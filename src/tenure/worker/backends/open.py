"""Who keeps the jobs of an app's tasks, opened for a worker: the broker for queues, a Redis for timers.

Only those are opened that a task needs: an app with timers alone needs no broker.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.worker.backends.backend import Backend
from tenure.worker.backends.queue import QueueSide
from tenure.worker.runtime.handler import Handler
from tenure.worker.runtime.link import Link
from tenure.worker.timer import TimerTask

if TYPE_CHECKING:
    from tenure.client.client import AsyncClient
    from tenure.worker.app import App

__all__ = ["Keeper", "opened_keepers"]


class Keeper(msgspec.Struct, frozen=True):
    """One of them, with the tasks whose jobs it keeps. ``client`` is for the schedule, which a broker alone keeps."""

    posts: list[tuple[Handler[Any], Backend]]
    client: AsyncClient | None = None


@asynccontextmanager
async def opened_keepers(app: App, tasks: Sequence[Handler[Any]], *, push: bool) -> AsyncIterator[list[Keeper]]:
    """Open what ``tasks`` need, and close it at the end.

    Handlers put and schedule through what the app opens for itself, so that they cannot keep heartbeats and acks
    waiting. Nor can the tasks themselves: each has a connection that waits for jobs.
    """
    timers = [task for task in tasks if isinstance(task, TimerTask)]
    queues = [task for task in tasks if not isinstance(task, TimerTask)]
    async with AsyncExitStack() as stack:
        keepers: list[Keeper] = []
        if queues:
            client = await stack.enter_async_context(app.new_client(more_streams=len(queues)))
            keepers.append(_broker(app, client, queues, push=push))
        if timers:
            keepers.append(_redis(app, stack, timers))
        yield keepers


def _broker(app: App, client: AsyncClient, tasks: Sequence[Handler[Any]], *, push: bool) -> Keeper:
    link = Link(app.url)
    return Keeper([(task, QueueSide(client, task.options, link=link, push=push)) for task in tasks], client)


def _redis(app: App, stack: AsyncExitStack, tasks: Sequence[TimerTask[Any]]) -> Keeper:
    from tenure.worker.backends.redis import TimerSide

    opened = app.new_timers()
    stack.push_async_callback(opened.close)
    link = Link(opened.address, "Redis")
    return Keeper([(task, TimerSide(opened.timers, task.options, link=link, node=opened.node)) for task in tasks])
