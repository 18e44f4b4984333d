"""The producers that a manifest remembers: a mapping whose copies share all but the recent changes.

A fold never changes the state before it. With 100,000 producers a plain dictionary would be copied whole by every
commit; here a copy costs the few hundred records that were written since the last merge, and a merge is rare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from tenure.buffer.manifest.keys import is_fresh_id

__all__ = ["ProducerRecord", "Producers"]

_RECENT_MAX = 512


class ProducerRecord(msgspec.Struct, frozen=True, array_like=True):
    """A producer's last commit: nothing at or below the ordinal is ever appended again.

    ``newest_name`` is the largest of its names, which void marks are compared with; ``last_name`` is that of the entry
    with the ordinal, and shows whose commit it was. It is empty where a version that did not know it wrote the record
    into a checkpoint.
    """

    ordinal: int
    newest_name: str
    ts_ms: int
    last_name: str = ""


class Producers(Mapping[str, ProducerRecord]):
    """Records by producer, in the order in which they first came; ``unnamed_count`` counts producers without a name."""

    __slots__ = ("_base", "_count", "_recent", "unnamed_count")

    def __init__(self, records: dict[str, ProducerRecord] | None = None) -> None:
        self._set(records or {})

    def _set(self, records: dict[str, ProducerRecord]) -> None:
        self._base = records  # shared between copies, and never changed
        self._recent: dict[str, ProducerRecord] = {}
        self._count = len(records)
        self.unnamed_count = sum(map(is_fresh_id, records))

    def __getitem__(self, producer: str) -> ProducerRecord:
        record = self._recent.get(producer)
        return self._base[producer] if record is None else record

    def __iter__(self) -> Iterator[str]:
        return iter(self.plain())

    def __len__(self) -> int:
        return self._count

    def plain(self) -> dict[str, ProducerRecord]:
        """Return the records as a dictionary."""
        return self._base | self._recent

    def copy(self) -> Producers:
        """Return a copy that can be changed without changing this one."""
        copy = Producers.__new__(Producers)
        copy._base, copy._recent = self._base, dict(self._recent)
        copy._count, copy.unnamed_count = self._count, self.unnamed_count
        return copy

    def remember(self, producer: str, record: ProducerRecord) -> None:
        """Set a producer's record."""
        if producer not in self:
            self._count += 1
            self.unnamed_count += is_fresh_id(producer)
        self._recent[producer] = record
        if len(self._recent) > _RECENT_MAX:
            self._base, self._recent = self.plain(), {}

    def keep(self, wanted: Callable[[str, ProducerRecord], bool]) -> None:
        """Remove every record that is not wanted."""
        self._set({name: record for name, record in self.plain().items() if wanted(name, record)})
