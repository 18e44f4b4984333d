"""A page of leases: up to 256 of one queue in columns, in the order in which they were given.

A lease of one job takes 44 bytes here and has no object of its own. With a million of them in flight, that is the
difference between 150 and 400 MB.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import compress
from typing import Final

from tenure.core.state.delays import NEVER

__all__ = ["PAGE_BITS", "PAGE_MASK", "PAGE_ROWS", "SPARSE_SHARE", "LeasePage"]

PAGE_BITS: Final = 8
PAGE_ROWS: Final = 1 << PAGE_BITS
PAGE_MASK: Final = PAGE_ROWS - 1
SPARSE_SHARE: Final = 4
"""A page is packed when fewer than one in so many of its leases are alive."""


class LeasePage:
    """The columns of up to 256 leases; ``left`` counts the jobs that each still holds, and is 0 for one that has ended.

    ``seqs`` has the first job that each started with. ``living`` counts the leases that hold a job. ``next_ms`` lies at
    or before every deadline of those. ``offsets`` is None until a page is packed; then it has the place that each lease
    had before. ``nodes`` refers to one string for each name; ``names`` has them until the page is full.
    """

    __slots__ = (
        "deadlines_ms",
        "left",
        "living",
        "names",
        "next_ms",
        "nodes",
        "numbers",
        "offsets",
        "seqs",
        "since_ms",
    )

    def __init__(
        self,
        numbers: Sequence[int] = (),
        seqs: Sequence[int] = (),
        nodes: Sequence[str] = (),
        since_ms: Sequence[int] = (),
        deadlines_ms: Sequence[int] = (),
    ) -> None:
        self.numbers = array("Q", numbers)
        self.seqs = array("Q", seqs)
        self.since_ms = array("Q", since_ms)
        self.deadlines_ms = array("Q", deadlines_ms)
        self.left = array("I", (1,)) * len(numbers)
        self.nodes = list(nodes)
        self.living = len(numbers)
        self.next_ms = min(deadlines_ms, default=NEVER)
        self.offsets: array[int] | None = None
        self.names: dict[str, str] | None = dict(zip(nodes, nodes, strict=True))

    def close(self) -> None:
        """Drop the names: the page is full, and no other lease will share them."""
        self.names = None

    def find(self, row: int) -> int:
        """Return the place of a row of this page, whose lease is alive."""
        offset = row & PAGE_MASK
        return offset if self.offsets is None else bisect_left(self.offsets, offset)

    def offset(self, index: int) -> int:
        """Return the place that the lease at ``index`` had at first: the lowest bits of its row."""
        return index if self.offsets is None else self.offsets[index]

    def pack(self) -> None:
        """Drop the leases that have ended. So one lease that is extended for days keeps little more than itself."""
        alive = list(map(bool, self.left))
        offsets = range(PAGE_ROWS) if self.offsets is None else self.offsets
        self.offsets = array("B", compress(offsets, alive))
        self.numbers = array("Q", compress(self.numbers, alive))
        self.seqs = array("Q", compress(self.seqs, alive))
        self.since_ms = array("Q", compress(self.since_ms, alive))
        self.deadlines_ms = array("Q", compress(self.deadlines_ms, alive))
        self.nodes = list(compress(self.nodes, alive))
        self.left = array("I", compress(self.left, alive))
