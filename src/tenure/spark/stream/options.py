"""The options of the streaming source, checked before anything starts, and the budget of a micro-batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from tenure.buffer.reading.consumer import Consumer
from tenure.errors import Invalid
from tenure.spark.jobs.plan import Limits

__all__ = ["Budget", "SourceOptions"]

_PARTITION_BYTES_MIN = 1 << 20
_ALL = 1 << 62


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of ``spark.readStream.format("tenure-buffer")``; `SourceOptions.parse` reads Spark's strings."""

    url: str
    group: str = "default"
    starting: int | Literal["earliest", "latest"] = "earliest"
    entries_max: int = 1_000_000
    """Entries of one micro-batch. Whole batches are taken, and always one, however large it is."""
    bytes_max: int = 1 << 30
    """Stored bytes of one micro-batch, counted the same way."""
    entries_min: int = 0
    """Entries to wait for before a micro-batch is made, but no longer than ``delay_ms_max``."""
    delay_ms_max: int = 60_000
    fail_on_data_loss: bool = True
    poll_ms: int = 100
    """Time between two reads of the manifest of a buffer that has nothing new."""
    partitions: int = 0
    """Tasks of a large micro-batch; 0 is one for each core of the driver's machine."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Parse the options that Spark passes; their names are taken in any case.

        Raises Invalid (``bad_option``) and names the option.
        """
        found: dict[str, Any] = {}
        for given, value in options.items():  # Spark hands names over in lower case
            if (name := _SPELLING.get(given.lower())) is None:
                raise _bad(given, f"is not one of tenure-buffer's: {', '.join(_OPTIONS)}")
            field, read = _OPTIONS[name]
            if field in found:
                raise _bad(name, "is given twice: `path` and `url` mean the same")
            try:
                found[field] = read(str(value).strip())
            except ValueError as error:
                raise _bad(name, f"{error}, not {value!r}") from None
        if "url" not in found:
            raise _bad("path", "is missing: it is the buffer's URL, such as s3://bucket/prefix or file:///a/directory")
        parsed = cls(**found)
        parsed._check()
        return parsed

    def parts(self, stored_bytes: int) -> int:
        """Return how many tasks read that much: one is enough for little, as each costs more than a small batch."""
        most = self.partitions or os.cpu_count() or 1
        return max(1, min(most, stored_bytes // _PARTITION_BYTES_MIN))

    def _check(self) -> None:
        if self.entries_min > self.entries_max:
            raise _bad("minEntriesPerTrigger", "must not exceed maxEntriesPerTrigger")
        if self.url.startswith("memory:"):
            raise _bad("path", "must name a store that every process sees, and memory:// is one per process")
        try:
            Consumer(self.url, group=self.group)  # it checks both, and does nothing before it is started
        except Invalid as error:
            about = "group" if error.message.startswith("a group's name") else "path"
            raise _bad(about, f"is refused: {error.message}") from None


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The most that one micro-batch takes, and what it waits for."""

    limits: Limits
    entries_min: int = 0

    @classmethod
    def of(cls, options: SourceOptions, limit: Any) -> Budget:
        """Return the stricter of the options and Spark's own ``ReadLimit``. "All available" overrides the options."""
        own = Limits(entries_max=options.entries_max, bytes_max=options.bytes_max)
        least = options.entries_min
        match type(limit).__name__:
            case "ReadAllAvailable":
                return cls(limits=Limits(entries_max=_ALL, bytes_max=_ALL, batches_max=_ALL))
            case "ReadMaxRows":
                own = replace(own, entries_max=min(own.entries_max, max(1, limit.max_rows)))
            case "ReadMaxBytes":
                own = replace(own, bytes_max=min(own.bytes_max, max(1, limit.max_bytes)))
            case "ReadMaxFiles":
                own = replace(own, batches_max=min(own.batches_max, max(1, limit.max_files)))
            case "ReadMinRows":
                least = max(least, limit.min_rows)
        return cls(limits=own, entries_min=min(least, own.entries_max))


def _bad(option: str, why: str) -> Invalid:
    return Invalid(f"option {option} {why}", code="bad_option", option=option)


def _number(low: int, high: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        if not value.isascii() or not value.isdigit() or not low <= int(value) <= high:
            raise ValueError(f"must be a whole number from {low:,} to {high:,}")
        return int(value)

    return read


def _parse_start(value: str) -> int | str:
    if value.lower() in {"earliest", "latest"}:
        return value.lower()
    if value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    raise ValueError("must be earliest, latest or the sequence of a batch")


def _flag(value: str) -> bool:
    if value.lower() not in {"true", "false"}:
        raise ValueError("must be true or false")
    return value.lower() == "true"


def _text(value: str) -> str:
    if not value:
        raise ValueError("must not be empty")
    return value


_OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "path": ("url", _text),
    "url": ("url", _text),
    "group": ("group", _text),
    "startingSequence": ("starting", _parse_start),
    "maxEntriesPerTrigger": ("entries_max", _number(1, 1 << 40)),
    "maxBytesPerTrigger": ("bytes_max", _number(1, 1 << 50)),
    "minEntriesPerTrigger": ("entries_min", _number(0, 1 << 40)),
    "maxTriggerDelayMs": ("delay_ms_max", _number(0, 86_400_000)),
    "failOnDataLoss": ("fail_on_data_loss", _flag),
    "pollMs": ("poll_ms", _number(1, 60_000)),
    "partitions": ("partitions", _number(1, 10_000)),
}
_SPELLING = {name.lower(): name for name in _OPTIONS}
