"""`RetryingCaller`: call a script, retry it where that is safe, and raise the few errors.

    not sent, or refused by Redis       nothing changed: repeat with jitter, then the refusal (mostly Overloaded)
    no answer                           unknown: repeat where a second copy is safe, else Indeterminate

Once the outcome of an attempt is unknown, only a success resolves it; any error that ends the retries then is raised as
Indeterminate.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec
from redis.exceptions import NoScriptError, RedisError

from tenure.backoff import backoff_ms
from tenure.contract.repeat import Repeat
from tenure.errors import Indeterminate, Overloaded, TenureError
from tenure.retries import Retries
from tenure.timers.outage_log import Outage
from tenure.timers.refusals import refusal_of
from tenure.timers.scripts import SCRIPTS, Answer, Keys
from tenure.timers.settings import TimersSettings
from tenure.timers.wire import Command, NoAnswer, NotSent, Wire

__all__ = ["RetryingCaller"]


class _Failure(msgspec.Struct, frozen=True):
    """A failed attempt: the error to raise, whether a repeat may succeed, and whether Redis may have run the script."""

    error: TenureError
    again: bool = True
    unknown: bool = False


class RetryingCaller:
    """Calls scripts over a wire."""

    def __init__(self, wire: Wire, keys_of: Callable[[str], Keys], settings: TimersSettings, *, outage: Outage) -> None:
        self._wire = wire
        self._keys_of = keys_of
        self._settings = settings
        self._outage = outage

    async def call(self, name: str, topic: str, args: Command, *, repeat: Repeat) -> Answer:
        """Call a script until Redis answers or the retries end. Raises the few errors."""
        settings = self._settings
        retries = Retries(
            repeat, attempts_max=settings.attempts_max, retry_for_ms=settings.retry_for_ms, now_s=time.monotonic
        )
        while True:
            try:
                reply = await self._run(name, topic, args, repeated=retries.unknown)
                self._outage.answered()
                return Answer(reply, retries.unknown)
            except (NotSent, NoAnswer, RedisError) as error:
                failure = self._failure_of(error)
            min_ms, max_ms = settings.backoff_min_ms, settings.backoff_max_ms
            wait_s = backoff_ms(retries.failures + 1, min_ms=min_ms, max_ms=max_ms) / 1000
            if not retries.may_repeat(again=failure.again, unknown=failure.unknown, wait_s=wait_s):
                raise _unknown(name, failure.error) if retries.unknown else failure.error
            await asyncio.sleep(wait_s)

    async def _run(self, name: str, topic: str, args: Command, *, repeated: bool) -> Any:
        """Run a script once: by its hash, and in full where the server does not know it."""
        script, keys = SCRIPTS[name], self._keys_of(topic)
        rest = (len(keys.names), *keys.names, keys.channel, b"1" if repeated else b"0", *args)
        try:
            return await self._wire.send(keys.names[0], (b"EVALSHA", script.sha, *rest))
        except NoScriptError:
            return await self._wire.send(keys.names[0], (b"EVAL", script.text, *rest))

    def _failure_of(self, error: NotSent | NoAnswer | RedisError) -> _Failure:
        if isinstance(error, NotSent):
            return _Failure(self._unreachable(f"Redis cannot be reached: {error}"))
        if isinstance(error, NoAnswer):
            return _Failure(self._unreachable(f"no answer came from Redis: {error}"), unknown=True)
        refusal = refusal_of(error)
        return _Failure(refusal.error, again=refusal.again)

    def _unreachable(self, message: str) -> Overloaded:
        self._outage.failed(message)
        return Overloaded(message, code="unreachable")


def _unknown(name: str, error: TenureError) -> Indeterminate:
    message = f"the outcome of {name} is unknown, it may or may not have been carried out: {error.message}"
    return Indeterminate(message, cause=error.code)
