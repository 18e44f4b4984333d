"""The records of files that compactions replaced: such a file stays for a while, for readers that know it.

A record is created before the commit that replaces its files, so whoever reads the log first and the records after it
finds every file that is not in the log because of a compaction.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

import msgspec

from tenure.objects.retrying import RetryingStore
from tenure.objects.store import ObjectMissing

__all__ = ["Replaced", "list_replaced", "record_replaced"]

_REPLACED: Final = "_replaced/"
_RECORD: Final = re.compile(r"([0-9]+)-[0-9]+-[0-9a-f]{16}\.json")
_RECORD_BYTES_MAX: Final = 16 << 20


class Replaced(NamedTuple):
    """A record: ``number`` is the log's where the compaction began, ``keys`` are the files that it was to replace."""

    record: str
    number: int
    modified_ms: int
    keys: tuple[str, ...]


async def record_replaced(retrying: RetryingStore, attempt: str, keys: Sequence[str]) -> None:
    """Record the files that an attempt at a compaction is about to replace."""
    await retrying.create_own(f"{_REPLACED}{attempt}.json", msgspec.json.encode(keys))


async def list_replaced(retrying: RetryingStore) -> AsyncIterator[Replaced]:
    """Yield every record; one that another run removes meanwhile is left out, as its files are."""
    async for info in retrying.list_objects(_REPLACED):
        match = _RECORD.fullmatch(info.key.removeprefix(_REPLACED))
        if match is None:
            continue
        try:
            data = await retrying.get(info.key, _RECORD_BYTES_MAX)
        except ObjectMissing:
            continue
        keys = msgspec.json.decode(data, type=tuple[str, ...])
        yield Replaced(info.key, int(match[1]), info.modified_ms, keys)
