"""The leases of a queue written out as columns, and read back.

There is a row for each lease, by number. A lease whose jobs have several deadlines has a row for each, by the lowest
seq that it holds. Pages of leases of one job each, as nearly all are where there are many, go from column to column
without a step per lease.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import compress
from typing import TypeAlias

import msgspec

from tenure.core.state.lease_page import PAGE_BITS, PAGE_ROWS, LeasePage
from tenure.core.state.queue import Queue
from tenure.core.state.ranges import each, to_runs

__all__ = ["LeaseColumns", "dump_leases", "load_leases"]

_Part: TypeAlias = tuple[int, list[int]]
"""A deadline, and the jobs of one lease that have it."""


class LeaseColumns(msgspec.Struct, frozen=True, array_like=True):
    """The rows of leases. Columns are packed u64, ``nodes`` u32: the place of a name in ``names``.

    ``seqs`` has the lowest job of each row. ``several`` has (row, runs) of those that hold more than one, and
    ``claim_ids`` (row, claim id) on the first row of a lease that has one.
    """

    names: list[str] = []
    numbers: bytes = b""
    nodes: bytes = b""
    since_ms: bytes = b""
    deadlines_ms: bytes = b""
    seqs: bytes = b""
    several: list[tuple[int, list[int]]] = []
    claim_ids: list[tuple[int, str]] = []


class _Rows:
    """The columns while they are filled or read."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.numbers, self.since_ms, self.deadlines_ms, self.seqs = (array("Q") for _ in range(4))
        self.nodes = array("I")
        self.several: list[tuple[int, list[int]]] = []
        self.claim_ids: list[tuple[int, str]] = []

    def add_page(self, page: LeasePage) -> None:
        """Add the leases of a page that hold the one job they started with; those that have ended are left out."""
        columns = (page.numbers, page.since_ms, page.deadlines_ms, page.seqs)
        nodes = page.nodes
        if page.living < len(page.left):
            alive = list(map(bool, page.left))
            columns = tuple(array("Q", compress(column, alive)) for column in columns)  # type: ignore[assignment]
            nodes = list(compress(nodes, alive))
        for mine, theirs in zip((self.numbers, self.since_ms, self.deadlines_ms, self.seqs), columns, strict=True):
            mine.extend(theirs)
        for name in dict.fromkeys(nodes):
            self.names.setdefault(name, len(self.names))
        self.nodes.extend(map(self.names.__getitem__, nodes))

    def add_lease(self, page: LeasePage, index: int, parts: list[_Part], *, claim_id: str | None) -> None:
        """Add one lease, with a row for each of its deadlines."""
        if claim_id is not None:
            self.claim_ids.append((len(self.numbers), claim_id))
        for deadline_ms, seqs in parts:
            if len(seqs) > 1:
                self.several.append((len(self.numbers), to_runs(seqs)))
            self.numbers.append(page.numbers[index])
            self.since_ms.append(page.since_ms[index])
            self.deadlines_ms.append(deadline_ms)
            self.seqs.append(seqs[0])
            name = page.nodes[index]
            self.nodes.append(self.names.setdefault(name, len(self.names)))

    def pack(self) -> LeaseColumns:
        """Return the columns as they are written."""
        return LeaseColumns(
            list(self.names),
            self.numbers.tobytes(),
            self.nodes.tobytes(),
            self.since_ms.tobytes(),
            self.deadlines_ms.tobytes(),
            self.seqs.tobytes(),
            self.several,
            self.claim_ids,
        )


def dump_leases(queue: Queue) -> LeaseColumns:
    """Return the leases of a queue, in a form that depends on nothing but who holds which job until when."""
    rows, table = _Rows(), queue.leases
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


def load_leases(queue: Queue, columns: LeaseColumns) -> None:
    """Put the leases of a snapshot into a queue that has none."""
    numbers, since_ms, deadlines_ms, seqs = (
        _column("Q", data) for data in (columns.numbers, columns.since_ms, columns.deadlines_ms, columns.seqs)
    )
    names = columns.names
    nodes = [names[node] for node in _column("I", columns.nodes)]
    runs_of, claim_ids = dict(columns.several), dict(columns.claim_ids)
    if not runs_of and not claim_ids and _ascend(numbers):
        for at in range(0, len(numbers), PAGE_ROWS):
            end = at + PAGE_ROWS
            page = LeasePage(numbers[at:end], seqs[at:end], nodes[at:end], since_ms[at:end], deadlines_ms[at:end])
            row = queue.leases.add_page(page)
            queue.in_flight.update(zip(page.seqs, range(row, row + len(page.seqs)), strict=True))
        return
    for first, last in _leases(numbers):
        parts = [(deadlines_ms[at], runs_of.get(at) or [seqs[at], 1]) for at in range(first, last)]
        runs = parts[0][1] if len(parts) == 1 else to_runs(seq for _, part in parts for seq in each(part))
        queue.hold(
            numbers[first],
            runs,
            node=nodes[first],
            since_ms=since_ms[first],
            deadline_ms=parts[0][0],
            claim_id=claim_ids.get(first),
        )
        for deadline_ms, part in parts[1:]:
            queue.set_apart(queue.in_flight[part[0]], each(part), deadline_ms)


def _column(code: str, data: bytes) -> array[int]:
    column = array(code)
    column.frombytes(data)
    return column


def _ascend(numbers: array[int]) -> bool:
    """Return whether every row is a lease of its own."""
    return len(set(numbers)) == len(numbers)


def _leases(numbers: array[int]) -> Iterator[tuple[int, int]]:
    """Yield the first row of each lease and the row after its last."""
    first = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[first]:
            yield first, at
            first = at
