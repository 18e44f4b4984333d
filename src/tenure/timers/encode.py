"""Check the arguments of callers and encode them for the scripts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import msgspec

from tenure.contract.names import describe_value
from tenure.contract.values import check_within
from tenure.errors import Invalid
from tenure.timers.model import At, Delay, NewTimer
from tenure.timers.settings import TimersSettings

__all__ = ["Entry", "chunks", "cut_reason", "entry_of", "operations", "spread"]

T = TypeVar("T")

_encoder: Final = msgspec.json.Encoder()


class Entry(msgspec.Struct, frozen=True):
    """One timer as ``schedule`` sends it."""

    timer_id: str
    op: bytes
    kind: str
    ms: int
    payload: bytes

    def args(self) -> tuple[bytes | str | int, ...]:
        return (self.timer_id, self.op, self.kind, self.ms, self.payload)


def operations(first: bytes) -> Iterator[bytes]:
    """Yield operation ids for the timers of one call, counted up from ``first``, which is random."""
    size = len(first)
    number = int.from_bytes(first)
    while True:
        yield number.to_bytes(size)
        number = (number + 1) % (1 << 8 * size)


def entry_of(new: NewTimer, settings: TimersSettings, *, op: bytes) -> Entry:
    """Return one checked timer. Raises Invalid."""
    kind, ms = _when(new.delay, new.at, settings)
    return Entry(timer_id_of(new.timer_id, settings), op, kind, ms, payload_of(new.payload, settings))


def timer_id_of(timer_id: str | None, settings: TimersSettings) -> str:
    """Return a checked timer id; a random one where none was given. Raises Invalid."""
    if timer_id is None:
        return os.urandom(12).hex()
    size = -1
    if isinstance(timer_id, str):
        try:
            size = len(timer_id.encode())
        except UnicodeEncodeError:
            size = -1
    if not 0 < size <= settings.id_bytes_max:
        raise Invalid(
            f"timer_id must be a string of 1 to {settings.id_bytes_max} bytes of UTF-8; got {describe_value(timer_id)}"
        )
    return timer_id


def payload_of(payload: Any, settings: TimersSettings) -> bytes:
    """Return bytes as they are, and other values as JSON; pydantic models encode themselves. Raises Invalid."""
    if isinstance(payload, (bytes, bytearray, memoryview)):
        data = bytes(payload)
    elif hasattr(payload, "model_dump_json"):
        data = str(payload.model_dump_json()).encode()
    else:
        try:
            data = _encoder.encode(payload)
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
            raise Invalid(f"payload must be bytes or a value that JSON can hold: {error}") from error
    if len(data) > settings.payload_bytes_max:
        raise Invalid(f"a payload may have {settings.payload_bytes_max} bytes; got {len(data)}", code="too_large")
    return data


def _when(delay: Delay | None, at: At | None, settings: TimersSettings) -> tuple[str, int]:
    if (delay is None) == (at is None):
        raise Invalid("give either delay or at")
    if delay is not None:
        ms = -(-delay // timedelta(milliseconds=1)) if isinstance(delay, timedelta) else delay
        return "in", check_within(ms, "delay", least=0, most=settings.delay_ms_max)
    return "at", _moment_ms(at)


def _moment_ms(at: At | None) -> int:
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise Invalid("at must have a time zone: datetime.now(timezone.utc), for instance")
        at = -(-(at - _EPOCH) // timedelta(milliseconds=1))
    return check_within(at, "at", least=0, most=_MOMENT_MAX_MS)


_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_MOMENT_MAX_MS: Final = 253_402_300_799_999
"""The end of the year 9999; every score below 2**53 is exact."""


def cut_reason(reason: str, settings: TimersSettings) -> bytes:
    """Return a reason as UTF-8, cut to ``reason_bytes_max``."""
    data = reason.encode(errors="replace")[: settings.reason_bytes_max]
    return data.decode(errors="ignore").encode()


def spread(value: T | Sequence[T], kind: type[T], count: int, what: str) -> Sequence[T]:
    """Return one value per timer, from one for all or one for each. Raises Invalid where a count or a type differs."""
    if isinstance(value, kind):
        return [value] * count
    if isinstance(value, (list, tuple)) and len(value) == count and all(isinstance(one, kind) for one in value):
        return value
    raise Invalid(
        f"{what} must be one {kind.__name__}, or one for each of the {count} timers; got {describe_value(value)}"
    )


def chunks(items: Sequence[T], sizes: Sequence[int], settings: TimersSettings) -> Iterator[Sequence[T]]:
    """Split items into the batches of scripts, by count and by bytes."""
    start = total = 0
    for index, size in enumerate(sizes):
        full = index - start == settings.batch_max or total + size > settings.batch_bytes_max
        if full and index > start:
            yield items[start:index]
            start, total = index, 0
        total += size
    if start < len(items):
        yield items[start:]
