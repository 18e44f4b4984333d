"""Schedules: the ticks of cron expressions and intervals, as wall time in ms. Pure.

Cron follows the rules of Debian's cron, by cronsim. Where clocks are put forward, a time that does not exist fires at
the first minute that does; where they are put back, a time that occurs twice fires the first time. An expression whose
minute or hour begins with a star counts real minutes and hours instead: it fires in both hours of a repeated one, and
not in a missing one.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from tenure.contract.names import describe_value
from tenure.errors import Invalid

__all__ = ["Cron", "Every", "Schedule", "due_ticks"]

_MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND_MS: Final = 1_000
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS


class Schedule(Protocol):
    """A rule for ticks, which are wall time in ms since the epoch."""

    def after(self, ms: int) -> int | None:
        """Return the first tick later than ``ms``, or None if there is none."""
        ...

    def at(self, tick_ms: int) -> datetime:
        """Return the tick as a datetime in the schedule's time zone."""
        ...


class Every:
    """A tick each ``every_ms``, counted from the epoch, so that all workers compute the same ticks."""

    def __init__(self, every_ms: int) -> None:
        self.every_ms = every_ms

    def after(self, ms: int) -> int:
        return (ms // self.every_ms + 1) * self.every_ms

    def at(self, tick_ms: int) -> datetime:
        return _EPOCH + _ms(tick_ms)


class Cron:
    """The ticks of a cron expression of five fields, or six with seconds in front, or of a macro like
    ``@daily``, in a time zone.

    Raises Invalid for an expression that is not valid or never ticks, and for an unknown time zone.
    """

    def __init__(self, expression: str, *, timezone: str = "UTC") -> None:
        self.expression = _expand(expression)
        self._zone = _zone(timezone)
        try:
            first = self.after(0)
        except CronSimError as error:
            raise Invalid(f"{expression!r} is no cron expression: {error}") from error
        if first is None:
            raise Invalid(f"{expression!r} never ticks")

    def after(self, ms: int) -> int | None:
        ticks = CronSim(self.expression, self.at(ms))
        for tick in ticks:
            tick_ms = _ms_of(tick)
            # In the second pass of a repeated hour, cronsim returns times of the first pass.
            if tick_ms > ms:
                counts_real_time = ticks.fixup_tz is None and self._zone is not UTC
                return self._past_shift(ms, tick_ms) if counts_real_time else tick_ms
        return None

    def _past_shift(self, ms: int, tick_ms: int) -> int:
        """Return the first tick after ``ms``, corrected from cronsim's ``tick_ms``.

        Cronsim steps in whole hours. Where clocks are set by a part of an hour, as on Lord Howe, it arrives in the
        middle of one and skips its beginning, for the rest of that day. There the times before and after the shift are
        searched separately, each with a fixed offset.
        """
        early_ms = tick_ms - _DAY_MS
        if (self._offset_ms(tick_ms) - self._offset_ms(early_ms)) % _HOUR_MS == 0:
            return tick_ms
        shift_ms = self._shift(early_ms, tick_ms)
        before_ms = self._fixed_after(max(ms, early_ms), self._offset_ms(early_ms))
        if before_ms < shift_ms:
            return before_ms
        return self._fixed_after(max(ms, shift_ms - 1), self._offset_ms(shift_ms))

    def _shift(self, early_ms: int, late_ms: int) -> int:
        """Return the time between the two from which the offset is that of the later one."""
        offset_ms = self._offset_ms(late_ms)
        while late_ms - early_ms > 1:
            middle_ms = (early_ms + late_ms) // 2
            if self._offset_ms(middle_ms) == offset_ms:
                late_ms = middle_ms
            else:
                early_ms = middle_ms
        return late_ms

    def _fixed_after(self, ms: int, offset_ms: int) -> int:
        """Return the first tick after ``ms`` with a fixed offset."""
        return _ms_of(next(CronSim(self.expression, _EPOCH + _ms(ms + offset_ms)))) - offset_ms

    def _offset_ms(self, ms: int) -> int:
        return (self.at(ms).utcoffset() or _ms(0)) // _ms(1)

    def at(self, tick_ms: int) -> datetime:
        return (_EPOCH + _ms(tick_ms)).astimezone(self._zone)


def _expand(expression: str) -> str:
    """Return an expression in fields, with a macro expanded. Raises Invalid for an unknown macro."""
    if not isinstance(expression, str):
        raise Invalid(f'cron must be text like "0 3 * * *" or "@daily"; got {describe_value(expression)}', field="cron")
    if not expression.startswith("@"):
        return expression
    if expression not in _MACROS:
        raise Invalid(f"{expression!r} is no cron macro: say {', '.join(_MACROS)}, or five fields", field="cron")
    return _MACROS[expression]


def due_ticks(schedule: Schedule, last_ms: int, now_ms: int, bound: int) -> list[int]:
    """Return the ticks after ``last_ms`` and not after ``now_ms``, ascending; of more than ``bound`` only the latest.

    The cost grows with ``bound`` and not with the time since ``last_ms``.
    """
    ticks: list[int] = []
    end_ms = now_ms
    while len(ticks) < bound:
        tick = _latest(schedule, last_ms, end_ms)
        if tick is None:
            break
        ticks.append(tick)
        end_ms = tick - 1
    ticks.reverse()
    return ticks


def _latest(schedule: Schedule, last_ms: int, end_ms: int) -> int | None:
    """Return the last tick after ``last_ms`` and not after ``end_ms``: look back in growing steps, then bisect."""
    step_ms, late_ms = _SECOND_MS, end_ms
    while True:
        early_ms = max(end_ms - step_ms, last_ms)
        found = schedule.after(early_ms)
        if found is not None and found <= end_ms:
            break
        if early_ms <= last_ms:
            return None
        late_ms, step_ms = early_ms, step_ms * 2
    # `found` is a tick in time; none lies within (late_ms, end_ms]. The answer is found or between it and late_ms.
    while found < late_ms:
        middle_ms = (found + late_ms) // 2
        later = schedule.after(middle_ms)
        if later is not None and later <= end_ms:
            found = later
        else:
            late_ms = middle_ms
    return found


def _zone(name: str) -> tzinfo:
    # UTC itself and not the zone of that name: cronsim is faster where nothing can be skipped or doubled.
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise Invalid(f"no time zone {name!r} here: use a name as in Europe/Berlin, or pip install tzdata") from error


def _ms_of(moment: datetime) -> int:
    return (moment.astimezone(UTC) - _EPOCH) // _ms(1)


def _ms(count: int) -> timedelta:
    return timedelta(milliseconds=count)
