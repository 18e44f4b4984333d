"""`Middleware`: hooks around a handler and around a put. Each hook calls the next one.

The first middleware of an app is the outermost. A hook that raises instead of calling the next one sets the outcome:
around a handler as if the handler had raised it, around a put for its caller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.worker.context import Context
from tenure.worker.verdict import Verdict

if TYPE_CHECKING:
    from tenure.worker.runtime.handler import Handler

__all__ = ["CallNext", "Middleware", "Outgoing", "Put", "PutNext", "around_handler", "around_put"]


class Outgoing(msgspec.Struct, kw_only=True):
    """One record of a put; ``data`` is JSON, and hooks may add to ``meta``."""

    data: bytes
    tag: str | None = None
    meta: dict[str, Any] | None = None
    delay_ms: int = 0
    deliver_at: int | None = None
    unique_key: str | None = None
    timer_id: str | None = None


class Put(msgspec.Struct, kw_only=True):
    """One call of ``put`` or ``put_many``, whose records are appended together or not at all; or one of ``schedule``,
    whose seqs are the versions of its timers.
    """

    task: Handler[Any]
    queue: str
    records: list[Outgoing]
    idempotency_key: str | None = None


CallNext = Callable[[], Awaitable[None]]
PutNext = Callable[[Put], Awaitable[list[int]]]


class Middleware:
    """The base of middlewares: override the hooks you need. A hook may run for many jobs at once.

    >>> import asyncio
    >>> from tenure import App, Middleware
    >>> from tenure.testing import AppTester
    >>> class Printing(Middleware):
    ...     async def handle(self, ctx, call_next):
    ...         print("begin", ctx.queue)
    ...         await call_next()
    >>> app = App(middlewares=[Printing()])
    >>> @app.task("mail")
    ... async def send(to: str) -> None: ...
    >>> async def main():
    ...     async with AppTester(app) as tester:
    ...         await send.put("ann")
    ...         await tester.run_until_idle()
    >>> asyncio.run(main())
    begin mail
    """

    async def handle(self, ctx: Context, call_next: CallNext) -> None:
        """Wrap the handler; ``call_next`` raises what the handler raised, including Ack, Nack and Reject."""
        await call_next()

    async def put(self, put: Put, call_next: PutNext) -> list[int]:
        """Wrap a put and return its seqs. ``Task.blocking`` runs it too, so it must not wait for anything."""
        return await call_next(put)

    def verdict(self, ctx: Context, verdict: Verdict | None) -> None:
        """Receive the verdict that will be sent; None where none is sent, or one was sent already."""


def around_handler(middlewares: Sequence[Middleware], ctx: Context, innermost: CallNext) -> CallNext:
    """Return ``innermost`` with every handle hook around it."""
    for middleware in reversed(middlewares):
        innermost = _handle_step(middleware, ctx, innermost)
    return innermost


def _handle_step(middleware: Middleware, ctx: Context, call_next: CallNext) -> CallNext:
    return lambda: middleware.handle(ctx, call_next)


def around_put(middlewares: Sequence[Middleware], innermost: PutNext) -> PutNext:
    """Return ``innermost`` with every put hook around it."""
    for middleware in reversed(middlewares):
        innermost = _put_step(middleware, innermost)
    return innermost


def _put_step(middleware: Middleware, call_next: PutNext) -> PutNext:
    return lambda put: middleware.put(put, call_next)
