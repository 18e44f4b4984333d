"""A page of leases: up to 256 of one queue in packed rows, in the order in which they were given.

A lease of one job takes 37 bytes here and has no object of its own. With a million of them in flight, that is the
difference between 150 and 400 MB.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import compress
from struct import Struct
from typing import Final, Self, TypeAlias

from tenure.core.state.delays import NEVER

__all__ = [
    "CELLS",
    "DEADLINE",
    "NUMBER",
    "PAGE_BITS",
    "PAGE_MASK",
    "PAGE_ROWS",
    "SEQ",
    "SINCE",
    "HolderKey",
    "LeasePage",
    "holder_key",
    "pack_row",
]

PAGE_BITS: Final = 8
PAGE_ROWS: Final = 1 << PAGE_BITS
PAGE_MASK: Final = PAGE_ROWS - 1

NUMBER, SINCE, DEADLINE, SEQ = range(4)
"""The cells of a row: the lease number, since when and until when it holds, and the first job that it started with."""
CELLS: Final = 4

pack_row: Final = Struct("=4Q").pack
"""Return the bytes of a row of cells."""
_each_row: Final = Struct("32s").iter_unpack
_SPARSE_SHARE: Final = 4
"""A page is packed when fewer than one in so many of its leases are alive."""

HolderKey: TypeAlias = str | tuple[str, str]
"""A holder within a page: its node, with its group where its leases isolate."""


def holder_key(node: str, group: str | None) -> HolderKey:
    """Return the key of a holder; a node may hold plain leases beside those that isolate."""
    return node if group is None else (node, group)


class LeasePage:
    """Up to 256 leases; ``left`` counts the jobs that each still holds, and is 0 for one that has ended.

    ``cells`` has four numbers for each. ``nodes`` has the place of its holder in ``names`` and ``groups``; a group is
    None unless the lease isolates. ``places`` leads from a `holder_key` to its place until the page is full.
    ``living`` counts the leases that hold a job. ``next_ms`` lies at or before every deadline of those. ``offsets`` is
    None until a page is packed; then it has the place that each lease had before. ``due`` is None until a deadline has
    come up; then it has ``deadline_ms << 8 | place`` in order, at least one entry at or before the deadline of each
    lease.
    """

    __slots__ = ("cells", "due", "groups", "left", "living", "names", "next_ms", "nodes", "offsets", "places")

    def __init__(self) -> None:
        self.cells = array("Q")
        self.left = array("I")
        self.nodes = array("B")
        self.names: list[str] = []
        self.groups: list[str | None] = []
        self.places: dict[HolderKey, int] | None = {}
        self.living = 0
        self.next_ms = NEVER
        self.offsets: array[int] | None = None
        self.due: array[int] | None = None

    @classmethod
    def of(cls, cells: array[int], holders: Sequence[HolderKey]) -> Self:
        """Return a page of leases of one job each, all of them alive."""
        page = cls()
        page.cells = cells
        page.left = array("I", (1,)) * len(holders)
        places = page._name_all(holders)
        page.places = places
        page.nodes = array("B", map(places.__getitem__, holders))
        page.living = len(holders)
        page.next_ms = min(page.column(DEADLINE))
        return page

    def column(self, cell: int) -> array[int]:
        """Return a copy of one cell of every row."""
        return self.cells[cell::CELLS]

    def _name_all(self, holders: Sequence[HolderKey]) -> dict[HolderKey, int]:
        """Set ``names`` and ``groups`` to these holders, each once; return the place of each."""
        places = {holder: place for place, holder in enumerate(dict.fromkeys(holders))}
        self.names = [holder if isinstance(holder, str) else holder[0] for holder in places]
        self.groups = [None if isinstance(holder, str) else holder[1] for holder in places]
        return places

    def add_name(self, node: str, group: str | None = None) -> int:
        """Add the name of a holder that has no lease in this page yet; return its place."""
        assert self.places is not None, "the last page is never a full one"
        place = self.places[holder_key(node, group)] = len(self.names)
        self.names.append(node)
        self.groups.append(group)
        return place

    def close(self) -> None:
        """Mark the page full: no lease is added to it any more."""
        self.places = None

    def find(self, row: int) -> int:
        """Return the place of a row of this page, whose lease is alive."""
        offset = row & PAGE_MASK
        return offset if self.offsets is None else bisect_left(self.offsets, offset)

    def offset(self, index: int) -> int:
        """Return the place that the lease at ``index`` had at first: the lowest bits of its row."""
        return index if self.offsets is None else self.offsets[index]

    def sort_deadlines(self) -> array[int]:
        """Return ``due`` for the leases that are alive."""
        deadlines_ms = zip(self.column(DEADLINE), self.left, strict=True)
        return array("Q", sorted(ms << PAGE_BITS | self.offset(i) for i, (ms, left) in enumerate(deadlines_ms) if left))

    def add_due(self, row: int, deadline_ms: int) -> None:
        """Add a deadline to ``due``, once."""
        assert self.due is not None, "no deadline of this page has come up"
        entry = deadline_ms << PAGE_BITS | row & PAGE_MASK
        at = bisect_left(self.due, entry)
        if at == len(self.due) or self.due[at] != entry:
            self.due.insert(at, entry)

    @property
    def is_sparse(self) -> bool:
        """Whether the page is full and most of its leases have ended."""
        return self.places is None and self.living * _SPARSE_SHARE < len(self.left)

    def living_cells(self) -> bytes:
        """Return the cells of the leases that are alive."""
        if self.living == len(self.left):
            return self.cells.tobytes()
        return b"".join([row for (row,) in compress(_each_row(self.cells), self.left)])

    def living_nodes(self) -> bytes:
        """Return the places of the holders of those leases in ``names``."""
        return bytes(compress(self.nodes, self.left))

    def pack(self) -> None:
        """Drop the leases that have ended. So one lease that is extended for days keeps little more than itself."""
        cells = array("Q")
        cells.frombytes(self.living_cells())
        holders = [holder_key(self.names[place], self.groups[place]) for place in self.living_nodes()]
        self.offsets = array("B", compress(range(PAGE_ROWS) if self.offsets is None else self.offsets, self.left))
        self.cells = cells
        self.nodes = array("B", map(self._name_all(holders).__getitem__, holders))
        self.left = array("I", filter(None, self.left))
