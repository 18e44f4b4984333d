"""Retries of what a table or a store refuses for now: with growing, bounded waits, and only where allowed.

A range keeps its identity, so asking, writing and acknowledging it may all be repeated: a table that holds it stores
nothing.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import Final, NoReturn, TypeVar

import msgspec

from tenure.backoff import backoff_ms
from tenure.clock import Clock, SystemClock
from tenure.errors import Closed, Indeterminate, Overloaded, TenureError

__all__ = ["RETRY_MS", "OnWait", "Retrying", "Stopped", "Waiting"]

log = logging.getLogger("tenure.spark")

T = TypeVar("T")

RETRY_MS: Final = 60_000
"""The time for which a job that ends by itself repeats one call before it gives up."""
_FIRST_WAIT_MS: Final = 250
_LONGEST_WAIT_MS: Final = 30_000
_NOT_NOW: Final = (Overloaded, Indeterminate, Closed)
_OVER: Final = frozenset({"closed", "client_closed", "forked", "ingest_failed", "producer_halted"})
"""Codes of what is closed in this process: the same call can never succeed. A server that is closed comes back."""


class Waiting(msgspec.Struct, frozen=True):
    """A call that was refused for now: the error, the attempts so far, and the wait until the next one."""

    error: TenureError
    attempts: int
    wait_ms: int


OnWait = Callable[[Waiting | None], None]
"""Called before each wait, and with None once the call has gone through."""


class Stopped(Exception):
    """Raised where ``stop`` was set while a call waited to be repeated."""


class Retrying:
    """A caller that repeats a call for ``within_ms``, or without limit where that is None; ``stop`` ends the wait."""

    def __init__(
        self,
        *,
        within_ms: int | None,
        stop: threading.Event,
        on_wait: OnWait | None = None,
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.stop = stop
        self._within_ms = within_ms
        self._on_wait = on_wait
        self._clock = clock or SystemClock()
        self._chance = chance

    def __call__(self, call: Callable[[], T]) -> T:
        """Return the call's result.

        Raises at once what must not be repeated; what is still refused when the time is up, with the next step; and
        Stopped.
        """
        began_ms, attempts = self._clock.boot_ms(), 0
        while True:
            try:
                given = call()
            except _NOT_NOW as error:
                if error.code in _OVER:
                    raise
                attempts += 1
                self._wait(error, attempts, self._clock.boot_ms() - began_ms)
            else:
                if attempts and self._on_wait is not None:
                    self._on_wait(None)
                return given

    def _wait(self, error: TenureError, attempts: int, spent_ms: int) -> None:
        wait_ms = int(backoff_ms(attempts, min_ms=_FIRST_WAIT_MS, max_ms=_LONGEST_WAIT_MS, chance=self._chance))
        if self._within_ms is not None:
            if spent_ms >= self._within_ms:
                _give_up(error, attempts, spent_ms)
            wait_ms = min(wait_ms, self._within_ms - spent_ms)
        log.info("attempt %s was refused, the next is in %s ms: %s", attempts, wait_ms, error)
        if self._on_wait is not None:
            self._on_wait(Waiting(error, attempts, wait_ms))
        if self.stop.wait(wait_ms / 1000):
            raise Stopped from error


def _give_up(error: TenureError, attempts: int, spent_ms: int) -> NoReturn:
    if attempts == 1:  # the caller did not want to wait
        raise error
    again = type(error)(
        f"{error.message} ({attempts} attempts in {spent_ms / 1000:.0f} s). See that it is back, and run again: the "
        "next run goes on behind what the table holds",
        code=error.code,
    )
    again.detail = error.detail
    raise again from error
