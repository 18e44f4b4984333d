"""The leases of a queue written out as packed rows, and read back.

There is a row for each lease, by number. A lease whose jobs have several deadlines has a row for each, by the lowest
seq that it holds. Pages of leases of one job each, as nearly all are where there are many, are copied as they are.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import TypeAlias

import msgspec

from tenure.core.events import Claimed
from tenure.core.state.lease_page import (
    CELLS,
    NUMBER,
    PAGE_BITS,
    PAGE_ROWS,
    SINCE,
    HolderKey,
    LeasePage,
    holder_key,
    pack_row,
)
from tenure.core.state.queue import Queue
from tenure.core.state.ranges import each, to_runs

__all__ = ["LeaseRows", "dump_leases", "load_leases"]

_Part: TypeAlias = tuple[int, list[int]]
"""A deadline, and the jobs of one lease that have it."""


class LeaseRows(msgspec.Struct, frozen=True, array_like=True):
    """Leases, packed. ``cells`` has four u64 a row: number, since_ms, deadline_ms, and the lowest job of the row.

    ``nodes`` has the place of each holder in ``names``: one byte of it for each row, the lowest first, in as many
    columns as there are bytes, none for a single name. ``several`` has (row, runs) of those that hold more than one
    job, and ``claim_ids`` (row, claim id) on the first row of a lease that has one. ``groups`` has (place, group) of
    the names whose leases isolate.
    """

    names: list[str] = []
    nodes: list[bytes] = []
    cells: bytes = b""
    several: list[tuple[int, list[int]]] = []
    claim_ids: list[tuple[int, str]] = []
    groups: list[tuple[int, str]] = []


class _Filling:
    """The rows while they are filled."""

    def __init__(self) -> None:
        self.holders: dict[HolderKey, int] = {}
        self.nodes: list[bytearray] = []
        self.cells = bytearray()
        self.several: list[tuple[int, list[int]]] = []
        self.claim_ids: list[tuple[int, str]] = []

    @property
    def count(self) -> int:
        return len(self.cells) // (8 * CELLS)

    def add_page(self, page: LeasePage) -> None:
        """Add the leases of a page that hold the one job they started with; those that have ended are left out."""
        if page.living == len(page.left):
            self._add(page.living_cells(), page.nodes.tobytes(), page, used=range(len(page.names)))
        else:
            nodes = page.living_nodes()
            self._add(page.living_cells(), nodes, page, used=dict.fromkeys(nodes))

    def add_lease(self, page: LeasePage, index: int, parts: list[_Part], *, claim_id: str | None) -> None:
        """Add one lease, with a row for each of its deadlines."""
        if claim_id is not None:
            self.claim_ids.append((self.count, claim_id))
        number, since_ms = page.cells[CELLS * index + NUMBER], page.cells[CELLS * index + SINCE]
        node = page.nodes[index : index + 1].tobytes()
        for deadline_ms, seqs in parts:
            if len(seqs) > 1:
                self.several.append((self.count, to_runs(seqs)))
            self._add(pack_row(number, since_ms, deadline_ms, seqs[0]), node, page, used=node)

    def _add(self, cells: bytes, nodes: bytes, page: LeasePage, *, used: Iterable[int]) -> None:
        """Add rows. ``nodes`` are places of holders in ``page``, those that are ``used``, in the order in which they
        come first; they are written as places among the holders of all.
        """
        before, places = self.count, [0] * len(page.names)
        for place in used:
            holder = holder_key(page.names[place], page.groups[place])
            places[place] = self.holders.setdefault(holder, len(self.holders))
        while len(self.holders) > 1 << 8 * len(self.nodes):
            self.nodes.append(bytearray(before))
        for byte, column in enumerate(self.nodes):
            column += nodes.translate(bytes([place >> 8 * byte & 255 for place in places]).ljust(256))
        self.cells += cells

    def pack(self) -> LeaseRows:
        """Return the rows as they are written."""
        nodes = [bytes(column) for column in self.nodes]
        names = [holder if isinstance(holder, str) else holder[0] for holder in self.holders]
        groups = [(place, holder[1]) for holder, place in self.holders.items() if not isinstance(holder, str)]
        return LeaseRows(names, nodes, bytes(self.cells), self.several, self.claim_ids, groups)


def dump_leases(queue: Queue) -> LeaseRows:
    """Return the leases of a queue, in a form that depends on nothing but who holds which job until when."""
    rows, table = _Filling(), queue.leases
    uneven = sorted({*table.runs, *table.apart, *table.claim_ids})
    uneven_pages = {row >> PAGE_BITS for row in uneven}
    for key, page in table.pages.items():
        if key not in uneven_pages:
            rows.add_page(page)
            continue
        for index in compress(range(len(page.left)), page.left):
            row = key << PAGE_BITS | page.offset(index)
            rows.add_lease(page, index, _parts(queue, row), claim_id=table.claim_ids.get(row))
    return rows.pack()


def _parts(queue: Queue, row: int) -> list[_Part]:
    """Return the jobs of a lease by deadline, in the order of the lowest job of each."""
    parts: dict[int, list[int]] = {}
    for seq, deadline_ms in queue.deadlines_of(row):
        parts.setdefault(deadline_ms, []).append(seq)
    return list(parts.items())


def load_leases(queue: Queue, rows: LeaseRows) -> None:
    """Put the leases of a snapshot into a queue that has none."""
    cells = array("Q")
    cells.frombytes(rows.cells)
    numbers, since_ms, deadlines_ms, seqs = (cells[cell::CELLS] for cell in range(CELLS))
    groups = dict(rows.groups)
    named = [holder_key(name, groups.get(place)) for place, name in enumerate(rows.names)]
    holders = [named[place] for place in _places(rows.nodes, len(numbers))]
    runs_of, claim_ids = dict(rows.several), dict(rows.claim_ids)
    if not runs_of and not claim_ids and len(set(numbers)) == len(numbers):
        for at in range(0, len(numbers), PAGE_ROWS):
            end = min(at + PAGE_ROWS, len(numbers))
            row = queue.leases.add_page(LeasePage.of(cells[CELLS * at : CELLS * end], holders[at:end]))
            queue.in_flight.update(zip(seqs[at:end], range(row, row + end - at), strict=True))
        return
    for first, last in _leases(numbers):
        parts = [(deadlines_ms[at], runs_of.get(at) or [seqs[at], 1]) for at in range(first, last)]
        runs = parts[0][1] if len(parts) == 1 else to_runs(seq for _, part in parts for seq in each(part))
        holder, claim_id, at_ms = holders[first], claim_ids.get(first), since_ms[first]
        node, group = (holder, None) if isinstance(holder, str) else holder
        queue.hold(Claimed(at_ms, 0, numbers[first], node, parts[0][0], runs, claim_id), group)
        for deadline_ms, part in parts[1:]:
            queue.set_apart(queue.in_flight[part[0]], each(part), deadline_ms)


def _places(columns: Sequence[bytes], count: int) -> Iterable[int]:
    """Return the numbers whose bytes are in these columns, the lowest first; without a column all are 0."""
    if len(columns) < 2:
        return columns[0] if columns else bytes(count)
    return (sum(byte << 8 * at for at, byte in enumerate(row)) for row in zip(*columns, strict=True))


def _leases(numbers: array[int]) -> Iterator[tuple[int, int]]:
    """Yield the first row of each lease and the row after its last."""
    first = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[first]:
            yield first, at
            first = at
