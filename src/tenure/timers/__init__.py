"""Timers on Redis or Valkey: a message that becomes due at a moment, handed out on a lease, never lost by a worker.

    from redis.asyncio import Redis
    from tenure.timers import Timers

    timers = Timers(Redis())
    await timers.schedule("reminders", {"to": 42}, delay=60_000, timer_id="reminder-42")

Needs the extra ``redis``: ``pip install 'tenure[redis]'``, in a clone ``pip install '.[redis]'``.
"""

from __future__ import annotations

from tenure.timers.model import (
    At,
    Cancelled,
    Delay,
    Extended,
    Held,
    NewTimer,
    OnConflict,
    Redriven,
    Scheduled,
    Settled,
    State,
    Stats,
    Timer,
    TimerInfo,
)
from tenure.timers.settings import TimersSettings
from tenure.timers.timers import Timers

__all__ = [
    "At",
    "Cancelled",
    "Delay",
    "Extended",
    "Held",
    "NewTimer",
    "OnConflict",
    "Redriven",
    "Scheduled",
    "Settled",
    "State",
    "Stats",
    "Timer",
    "TimerInfo",
    "Timers",
    "TimersSettings",
]
