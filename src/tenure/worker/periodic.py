"""Periodic jobs without a single scheduler: every worker computes the ticks, any may fire one, one append wins.

A tick is fired by appending its job under ``client_id`` = ``cron:<task>`` and ``client_seq`` = the tick's time. The
broker takes a number above the last one and refuses every other, so a fleet fires each tick once, also where workers
are killed. A refusal is the usual case, and contains the last tick that was fired.

Clocks differ. A worker that is ahead appends early, but the job carries the tick as its ``deliver_at``, so that it is
not handled before that time on the broker's own clock. A worker whose clock is behind is refused.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from tenure.contract.records import Record
from tenure.durations import Duration, ms_of
from tenure.errors import Conflict, Invalid, NotFound, TenureError
from tenure.worker.cron import Cron, Every, Schedule, due_ticks
from tenure.worker.observing.metrics import Stats
from tenure.worker.runtime.timing import Timing

if TYPE_CHECKING:
    from tenure.client.client import AsyncClient

__all__ = ["OneSchedule", "Periodic", "PeriodicLoop", "Scheduled", "Tick"]

log = logging.getLogger("tenure.worker")

LOOK_BACK_MS: Final = 6 * 24 * 3_600_000
"""How old a missed tick may be. The broker remembers a schedule's last tick for 7 days, so within 6 it always knows
whether a tick was fired."""
WAKE_MS: Final = 60_000
"""The longest sleep, after which a clock that was set is noticed."""
JITTER_MS: Final = 200
"""The jitter of a tick, so that the workers of a fleet do not append at the same moment."""
RETRY_MS: Final = 5_000
"""The wait after a tick that could not be fired; the client has retried before."""
CATCH_UP_MAX: Final = 1_000
"""The most missed ticks of one schedule that are fired at once."""
AHEAD_MS: Final = 60_000
"""A last tick further in the future than this is logged as a warning."""


class Tick(msgspec.Struct, frozen=True):
    """The payload of a periodic handler: the time it was due, in the schedule's zone and in ms."""

    at: datetime
    ms: int


class Periodic(msgspec.Struct, frozen=True):
    """One schedule of an app. Its jobs go to ``queue``.

    Of the ticks missed while no worker ran, the latest alone is fired; with ``catch_up`` each of the latest
    ``catch_up_max``, in order.
    """

    queue: str
    schedule: Schedule
    catch_up: bool = False
    catch_up_max: int = 100

    @classmethod
    def of(
        cls,
        queue: str,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        timezone: str | None = None,
        catch_up: bool = False,
        catch_up_max: int = 100,
    ) -> Periodic:
        """Return the schedule of ``cron`` with a ``timezone`` (default UTC), or of ``every``.

        Raises Invalid where neither or both are given, or one is not valid.
        """
        if (cron is None) == (every is None):
            raise Invalid(f'{queue} needs a schedule: either cron="0 3 * * *" or every="15m"', field="cron")
        if not 1 <= catch_up_max <= CATCH_UP_MAX:
            raise Invalid(f"catch_up_max must be from 1 to {CATCH_UP_MAX}", field="catch_up_max")
        if cron is not None:
            return cls(queue, Cron(cron, timezone=timezone or "UTC"), catch_up, catch_up_max)
        if timezone is not None:
            raise Invalid("a time zone belongs to cron: `every` counts from the epoch", field="timezone")
        every_ms = ms_of(every, field="every", min_ms=1_000)
        return cls(queue, Every(every_ms), catch_up, catch_up_max)

    @property
    def client_id(self) -> str:
        return f"cron:{self.queue}"

    @property
    def bound(self) -> int:
        """How many missed ticks are fired."""
        return self.catch_up_max if self.catch_up else 1


class Scheduled(Protocol):
    """The part of an App that is used here: its schedules by queue."""

    @property
    def periodics(self) -> Mapping[str, Periodic]: ...


class OneSchedule(msgspec.Struct, frozen=True):
    """A single schedule by its queue, so that one whose queue cannot be reached delays no other."""

    periodics: Mapping[str, Periodic]


class PeriodicLoop:
    """Fires the ticks of schedules, concurrently with the loops of other workers.

    A schedule whose queue has never held a job begins when the loop is made: deploying a nightly job at noon does not
    run last night's. On a queue with earlier jobs a new schedule cannot be distinguished from one whose workers were
    away, so its latest tick is fired like a missed one.
    """

    def __init__(
        self,
        app: Scheduled,
        client: AsyncClient,
        timing: Timing,
        *,
        stats: Stats | None = None,
        dice: random.Random | None = None,
    ) -> None:
        self._periodics = tuple(app.periodics.values())
        self._client = client
        self._timing = timing
        self._stats = stats or Stats()
        self._dice = dice or random.Random()
        self._began_ms = timing.wall_ms()
        self._last_ms: dict[str, int] = {}
        self._failed: set[str] = set()

    async def run(self) -> None:
        """Fire due ticks until cancelled; returns at once where nothing is scheduled.

        It survives unexpected errors, which are logged: a loop that ended would go unnoticed until a tick is missed.
        """
        while self._periodics:
            try:
                await self.fire_due(self._timing.wall_ms())
            except Exception:
                log.exception("the schedule stumbled, it goes on")
            await self._timing.sleep_ms(self.pause_ms(self._timing.wall_ms()))

    async def fire_due(self, now_ms: int) -> int:
        """Fire every tick that is due and not known to be fired; returns how many jobs this loop appended.

        Errors are logged and retried by the next call, never raised. A schedule whose queue does not exist is skipped:
        no worker has declared it yet.
        """
        fired_count = 0
        for periodic in self._periodics:
            try:
                fired_count += await self._fire(periodic, now_ms)
            except NotFound:
                continue
            except TenureError as error:
                self._note_failure(periodic, error)
            else:
                self._failed.discard(periodic.queue)
        return fired_count

    def pause_ms(self, now_ms: int) -> float:
        """Return how long to sleep: until the next tick plus jitter, at most a minute."""
        known = ((periodic.schedule, self._last_ms.get(periodic.queue)) for periodic in self._periodics)
        nexts = [schedule.after(max(now_ms, last_ms)) for schedule, last_ms in known if last_ms is not None]
        next_ms = min((tick for tick in nexts if tick is not None), default=now_ms + WAKE_MS)
        pause_ms = min(next_ms - now_ms + self._dice.uniform(0, JITTER_MS), WAKE_MS)
        return min(pause_ms, RETRY_MS * self._dice.uniform(0.5, 1)) if self._failed else pause_ms

    async def _fire(self, periodic: Periodic, now_ms: int) -> int:
        last_ms = self._last_ms.get(periodic.queue)
        if last_ms is None:
            last_ms = self._last_ms[periodic.queue] = await self._first_look(periodic, now_ms)
        fired_count = 0
        for tick_ms in due_ticks(periodic.schedule, max(last_ms, now_ms - LOOK_BACK_MS), now_ms, periodic.bound):
            # A refusal may have contained a later tick than this one.
            if tick_ms > self._last_ms[periodic.queue] and await self._append(periodic, tick_ms, now_ms):
                fired_count += 1
        return fired_count

    async def _first_look(self, periodic: Periodic, now_ms: int) -> int:
        """Return the last tick to assume as fired for a worker that has just started. The first refusal corrects it."""
        topic = await self._client.topic(periodic.queue, touch=False)
        if topic.head_seq == 0:
            return min(self._began_ms, now_ms)
        return now_ms - LOOK_BACK_MS

    async def _append(self, periodic: Periodic, tick_ms: int, now_ms: int) -> bool:
        """Append the job of one tick; return False where another worker did."""
        tick = Tick(at=periodic.schedule.at(tick_ms), ms=tick_ms)
        record = Record(data=msgspec.json.encode(tick), deliver_at=tick_ms)
        try:
            produced = await self._client.produce(
                periodic.queue, [record], client_id=periodic.client_id, client_seq=tick_ms, create=False
            )
        except Conflict as conflict:
            last_ms = _last_tick(conflict, tick_ms)
            self._last_ms[periodic.queue] = last_ms
            if last_ms > now_ms + AHEAD_MS:
                _warn_of_the_future(periodic, last_ms)
            return False
        self._last_ms[periodic.queue] = tick_ms
        if produced.deduped:  # after a lost answer: a copy of this append, or another worker's
            return False
        self._stats.queue(periodic.queue).ticks += 1
        return True

    def _note_failure(self, periodic: Periodic, error: TenureError) -> None:
        """Log a failure once, not at every attempt."""
        if periodic.queue not in self._failed:
            log.warning("a tick of %s could not be fired, it is tried again: %s", periodic.queue, error.message)
        self._failed.add(periodic.queue)


def _last_tick(conflict: Conflict, tick_ms: int) -> int:
    """Return the last tick fired, from the broker's refusal; any other conflict is raised again."""
    last: Any = conflict.detail.get("last_client_seq")
    if not isinstance(last, int) or last < tick_ms:
        raise conflict
    return last


def _warn_of_the_future(periodic: Periodic, last_ms: int) -> None:
    log.warning(
        "%s has ticked until %s: the clock of some worker was ahead. It goes on after that; under another name at once",
        *(periodic.queue, periodic.schedule.at(last_ms).isoformat()),
    )
