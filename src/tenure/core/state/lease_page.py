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
from typing import Final, Self

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
    "LeasePage",
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


class LeasePage:
    """Up to 256 leases; ``left`` counts the jobs that each still holds, and is 0 for one that has ended.

    ``cells`` has four numbers for each. ``nodes`` has the place of its holder in ``names``; ``places`` leads from a
    name to its place until the page is full. ``living`` counts the leases that hold a job. ``next_ms`` lies at or
    before every deadline of those. ``offsets`` is None until a page is packed; then it has the place that each lease
    had before.
    """

    __slots__ = ("cells", "left", "living", "names", "next_ms", "nodes", "offsets", "places")

    def __init__(self) -> None:
        self.cells = array("Q")
        self.left = array("I")
        self.nodes = array("B")
        self.names: list[str] = []
        self.places: dict[str, int] | None = {}
        self.living = 0
        self.next_ms = NEVER
        self.offsets: array[int] | None = None

    @classmethod
    def of(cls, cells: array[int], nodes: Sequence[str]) -> Self:
        """Return a page of leases of one job each, all of them alive."""
        page = cls()
        page.cells = cells
        page.left = array("I", (1,)) * len(nodes)
        page.names = list(dict.fromkeys(nodes))
        places = page.places = {name: place for place, name in enumerate(page.names)}
        page.nodes = array("B", map(places.__getitem__, nodes))
        page.living = len(nodes)
        page.next_ms = min(page.column(DEADLINE))
        return page

    def column(self, cell: int) -> array[int]:
        """Return a copy of one cell of every row."""
        return self.cells[cell::CELLS]

    def add_name(self, node: str) -> int:
        """Add the name of a holder that has no lease in this page yet; return its place."""
        assert self.places is not None, "the last page is never a full one"
        place = self.places[node] = len(self.names)
        self.names.append(node)
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
        names = [self.names[place] for place in self.living_nodes()]
        self.offsets = array("B", compress(range(PAGE_ROWS) if self.offsets is None else self.offsets, self.left))
        self.cells = cells
        self.names = list(dict.fromkeys(names))
        self.nodes = array("B", map(self.names.index, names))
        self.left = array("I", filter(None, self.left))
