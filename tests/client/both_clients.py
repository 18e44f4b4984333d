"""One suite for both clients: `Both` makes the blocking one awaitable, by a thread, and leaves the other as it is."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from tenure import AsyncClient, Client

__all__ = ["KINDS", "Both", "make_client"]

KINDS = ("blocking", "async")


class Both:
    """A client, feed, queue or lease of either kind; every call is awaited. Plain attributes are as they are."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        return self._calling(value) if callable(value) else value

    def _calling(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def run(*args: Any, **options: Any) -> Any:
            return await _run(call, *args, **options)

        return run

    async def next(self) -> Any:
        """The next item of a feed; StopAsyncIteration at its end."""
        if hasattr(self.inner, "__anext__"):
            return await anext(self.inner)
        missing = object()
        item = await asyncio.to_thread(next, self.inner, missing)
        if item is missing:
            raise StopAsyncIteration
        return item

    async def drain(self) -> None:
        """Read a feed until it raises."""
        while True:
            await self.next()

    async def __aenter__(self) -> Both:
        if hasattr(self.inner, "__aenter__"):
            await self.inner.__aenter__()
        else:
            await asyncio.to_thread(self.inner.__enter__)
        return self

    async def __aexit__(self, *error: Any) -> None:
        if hasattr(self.inner, "__aexit__"):
            await self.inner.__aexit__(*error)
        else:
            await asyncio.to_thread(self.inner.__exit__, *error)


async def _run(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    owner = getattr(call, "__self__", None) or getattr(call, "args", (None,))[0]
    if type(owner).__name__.startswith("Async"):
        made = call(*args, **options)
        return await made if inspect.isawaitable(made) else made
    return await asyncio.to_thread(call, *args, **options)


def make_client(kind: str, url: str, **options: Any) -> Both:
    """A client of one kind."""
    return Both(Client(url, **options) if kind == "blocking" else AsyncClient(url, **options))
