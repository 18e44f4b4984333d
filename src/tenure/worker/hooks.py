"""Startup and shutdown hooks: run once in every process that runs handlers, before its first job and after its last.

A plain function runs in a thread, as a plain handler does, so that a hook that hangs can be abandoned. Startup hooks
run in the order of their declaration, and shutdown hooks in reverse order.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from tenure.errors import Invalid
from tenure.worker.observing.reason import exc_info_of
from tenure.worker.runtime.timing import Timing, within

__all__ = ["Hook", "Hooks", "StartupFailed"]

log = logging.getLogger("tenure.worker")

Hook = Callable[[], object]
HOOKS_MAX: Final = 100


class StartupFailed(Exception):
    """A startup hook failed, so the process takes no jobs; the cause is what the hook raised."""


class Hooks:
    """The hooks of one app."""

    def __init__(self) -> None:
        self._startup: list[Hook] = []
        self._shutdown: list[Hook] = []

    def on_startup(self, hook: Hook) -> None:
        """Add a hook that runs before the first job. Raises Invalid unless it is a function without arguments."""
        _add(self._startup, hook)

    def on_shutdown(self, hook: Hook) -> None:
        """Add a hook that runs after the last job. Raises Invalid unless it is a function without arguments."""
        _add(self._shutdown, hook)

    async def start(self, timing: Timing, limit_ms: int) -> None:
        """Run the startup hooks, within ``limit_ms`` for all. Raises StartupFailed at the first that fails."""
        until_ms = timing.now_ms() + limit_ms
        for hook in self._startup:
            try:
                await within(timing, max(0, until_ms - timing.now_ms()), _call(hook))
            except Exception as error:
                is_late = isinstance(error, TimeoutError) and timing.now_ms() >= until_ms
                why = f"startup took longer than {limit_ms} ms" if is_late else f"{type(error).__name__}: {error}"
                raise StartupFailed(f"the startup hook {_name(hook)} failed: {why}") from error

    async def stop(self, timing: Timing, limit_ms: int) -> None:
        """Run the shutdown hooks, within ``limit_ms`` for all; a failed hook is logged, and the others run."""
        until_ms = timing.now_ms() + limit_ms
        for hook in reversed(self._shutdown):
            try:
                await within(timing, max(0, until_ms - timing.now_ms()), _call(hook))
            except Exception as error:
                log.error("the shutdown hook %s failed: %r", _name(hook), error, exc_info=exc_info_of(error))


def _add(hooks: list[Hook], hook: Hook) -> None:
    try:
        parameters = inspect.signature(hook).parameters.values()
    except (TypeError, ValueError):
        raise Invalid(f"a hook must be a function; got {hook!r}") from None
    if any(parameter.default is parameter.empty and parameter.kind not in _VARIABLE for parameter in parameters):
        raise Invalid(f"{_name(hook)} must take no argument: a hook gets none")
    inner = inspect.unwrap(hook)  # a decorated generator would make a context manager that is never entered
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise Invalid(f"{_name(hook)} must not yield: write one function for startup and one for shutdown")
    if len(hooks) >= HOOKS_MAX:
        raise Invalid(f"an app has at most {HOOKS_MAX} hooks of a kind")
    hooks.append(hook)


_VARIABLE: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


async def _call(hook: Hook) -> None:
    result = await hook() if inspect.iscoroutinefunction(hook) else await _in_thread(hook)
    if inspect.isawaitable(result):
        await result


async def _in_thread(call: Callable[[], Any]) -> Any:
    """Run a function in a thread that does not keep the process alive."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Any, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    def serve() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = context.run(call)
        except BaseException as raised:
            error = RuntimeError("it raised StopIteration") if isinstance(raised, StopIteration) else raised
        with suppress(RuntimeError):  # the loop is closed: the result is not awaited any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=serve, name=f"hook-{_name(call)}", daemon=True).start()
    return await answer


def _name(hook: Callable[..., Any]) -> str:
    return getattr(hook, "__qualname__", repr(hook))
