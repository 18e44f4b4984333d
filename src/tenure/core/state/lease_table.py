"""The leases of a queue, in pages; which of them end next, and which one has a number.

A lease is known by its row, which counts the claims of its queue since it was loaded. Rows ascend as lease numbers do,
so a number is found by bisection, and no second table by number is kept. Deadlines are indexed by page: those of a page
are sorted when the earliest of them comes up. An ack, and an extend to a later deadline, cost nothing in that index,
and a lease that ends in time never shows up in it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import compress, islice
from typing import Final

from tenure.core.events import Claimed
from tenure.core.state.delays import NEVER
from tenure.core.state.lease_page import CELLS, DEADLINE, NUMBER, PAGE_BITS, PAGE_MASK, SINCE, LeasePage, pack_row
from tenure.core.state.ranges import count
from tenure.core.state.step_budget import StepBudget

__all__ = ["EPOCH_SHIFT", "LeaseTable"]

EPOCH_SHIFT: Final = 40
"""The bits of a lease number below the epoch of the log in which it was given."""

_IDLE_ROWS: Final = 16
"""The last page is dropped when it has no living lease and had so many: an idle queue is small."""
_SORTED_PER_LOOK: Final = 32
"""How many deadlines are sorted in the time that one entry of an index is looked at."""
_STALE_MIN: Final = 64
"""How many entries of the heap may be stale even where they outnumber the pages."""


class LeaseTable:
    """The leases of one queue that hold a job, by row. ``pages`` are in the order of their rows.

    ``runs`` has the jobs that a lease started with, where it was more than one. ``apart`` counts the jobs of a lease
    that it still holds with a deadline of their own. ``claim_ids`` has the claim id of a lease, where it has one, and
    ``claims`` the number of the lease by its claim id. ``_isolated`` has the pages in which a node has, or had, leases
    that isolate: when its process is gone, they are found without a look at the others.
    """

    __slots__ = (
        "_firsts",
        "_heap",
        "_isolated",
        "_keys",
        "_next_row",
        "_tail",
        "apart",
        "claim_ids",
        "claims",
        "pages",
        "runs",
    )

    def __init__(self) -> None:
        self.pages: dict[int, LeasePage] = {}
        self.runs: dict[int, list[int]] = {}
        self.apart: dict[int, int] = {}
        self.claim_ids: dict[int, str] = {}
        self.claims: dict[str, int] = {}
        self._tail: LeasePage | None = None
        self._isolated: dict[str, dict[int, None]] = {}
        self._next_row = 0
        self._firsts: list[int] = []
        self._keys: list[int] = []
        self._heap: list[tuple[int, int]] = []

    @property
    def count(self) -> int:
        """Return how many leases there are."""
        return sum([page.living for page in self.pages.values()])

    # One lease

    def add(self, event: Claimed, group: str | None = None) -> int:
        """Add a lease, with a number above all others; return its row. With a ``group`` it isolates."""
        page, runs, deadline_ms = self._tail, event.runs, event.deadline_ms
        if page is None:
            page = self._open_page(LeasePage(), event.lease)
        row, holder = self._next_row, event.node if group is None else (event.node, group)
        place = page.places.get(holder)  # type: ignore[union-attr]  # the last page is not full
        if place is None:
            place = page.add_name(event.node, group)
            if group is not None:
                self._isolated.setdefault(event.node, {})[row >> PAGE_BITS] = None
        page.cells.frombytes(pack_row(event.lease, event.at_ms, deadline_ms, runs[0]))
        page.left.append(1)
        page.nodes.append(place)
        page.living += 1
        self._next_row = row + 1
        if page.due is not None:
            page.add_due(row, deadline_ms)
        if deadline_ms < page.next_ms:
            self._plan(row >> PAGE_BITS, page, deadline_ms)
        if runs[1] > 1 or len(runs) > 2:
            page.left[-1] = count(runs)
            self.runs[row] = runs
        if event.claim_id is not None:
            self.claims[event.claim_id] = event.lease
            self.claim_ids[row] = event.claim_id
        if row & PAGE_MASK == PAGE_MASK:
            page.close()
            self._tail = None
        return row

    def add_page(self, page: LeasePage) -> int:
        """Add a page of leases of one job each, all of them alive; return the first of their rows.

        The caller adds full pages, and at last one that may be smaller.
        """
        self._open_page(page, page.cells[NUMBER])
        row = self._next_row
        for node, group in zip(page.names, page.groups, strict=True):
            if group is not None:
                self._isolated.setdefault(node, {})[row >> PAGE_BITS] = None
        self._next_row = row + page.living
        heappush(self._heap, (page.next_ms, row >> PAGE_BITS))
        if not self._next_row & PAGE_MASK:
            page.close()
            self._tail = None
        return row

    def locate(self, row: int) -> tuple[LeasePage, int]:
        """Return the page of a living lease, and its place there."""
        page = self.pages[row >> PAGE_BITS]
        return page, page.find(row)

    def cells(self, row: int) -> array[int]:
        """Return the cells of a living lease."""
        page = self.pages[row >> PAGE_BITS]
        at = CELLS * (row & PAGE_MASK if page.offsets is None else page.find(row))
        return page.cells[at : at + CELLS]

    def number(self, row: int) -> int:
        """Return the number of a living lease."""
        return self.cells(row)[NUMBER]

    def left(self, row: int) -> int:
        """Return how many jobs a living lease holds."""
        page, index = self.locate(row)
        return page.left[index]

    def node(self, row: int) -> str:
        """Return the holder of a lease."""
        page = self.pages[row >> PAGE_BITS]
        return page.names[page.nodes[row & PAGE_MASK if page.offsets is None else page.find(row)]]

    def group(self, row: int) -> str | None:
        """Return the group of a lease that isolates; None for another one."""
        page = self.pages[row >> PAGE_BITS]
        return page.groups[page.nodes[row & PAGE_MASK if page.offsets is None else page.find(row)]]

    def isolated_of(self, node: str) -> list[int]:
        """Return the numbers of a node's leases that isolate, ascending, at the cost of the pages that it is in."""
        numbers: list[int] = []
        for key in self._isolated.get(node, ()):
            page = self.pages[key]
            mine = {place for place, name in enumerate(page.names) if name == node and page.groups[place] is not None}
            cells = page.column(NUMBER)
            numbers += [cells[i] for i, left in enumerate(page.left) if left and page.nodes[i] in mine]
        return sorted(numbers)

    def since_ms(self, row: int) -> int:
        """Return when a lease was given."""
        page = self.pages[row >> PAGE_BITS]
        return page.cells[CELLS * (row & PAGE_MASK if page.offsets is None else page.find(row)) + SINCE]

    def row_of(self, number: int) -> int | None:
        """Return the row of the lease of this number, or None where it is over."""
        at = bisect_right(self._firsts, number) - 1
        if at < 0:
            return None
        key = self._keys[at]
        page = self.pages[key]
        numbers = page.column(NUMBER)
        index = bisect_left(numbers, number)
        if index == len(numbers) or numbers[index] != number or not page.left[index]:
            return None
        return key << PAGE_BITS | page.offset(index)

    def reduce(self, row: int, taken: int) -> None:
        """Count off jobs that a lease does not hold any more; it ends with the last."""
        page = self.pages[row >> PAGE_BITS]
        index = row & PAGE_MASK if page.offsets is None else page.find(row)
        left = page.left[index] - taken
        page.left[index] = left
        if left:
            return
        if self.runs or self.claim_ids:
            self._forget(row, page.cells[CELLS * index + NUMBER])
        page.living -= 1
        if not page.living:
            if page is not self._tail or len(page.left) >= _IDLE_ROWS:
                self._drop_page(row >> PAGE_BITS)
        elif page.is_sparse:
            names = page.names
            page.pack()
            if self._isolated:
                self._leave(row >> PAGE_BITS, set(names).difference(page.names))

    def _forget(self, row: int, number: int) -> None:
        """Forget the runs and the claim id of a lease that is over."""
        self.runs.pop(row, None)
        claim_id = self.claim_ids.pop(row, None)
        if claim_id is not None and self.claims.get(claim_id) == number:
            del self.claims[claim_id]

    def numbers_after(self, number: int, limit: int) -> list[int]:
        """Return the lowest numbers above this one, ascending, at most ``limit``."""
        at = max(bisect_right(self._firsts, number) - 1, 0)
        return list(islice(self._numbers_from(at, number), limit))

    def _numbers_from(self, at: int, number: int) -> Iterator[int]:
        for key in self._keys[at:]:
            page = self.pages[key]
            numbers = page.column(NUMBER)
            first = bisect_right(numbers, number)
            yield from compress(numbers[first:], page.left[first:])

    # Deadlines

    @property
    def next_ms(self) -> int:
        """Return a time at or before the earliest deadline; NEVER without a lease."""
        return self._heap[0][0] if self._heap else NEVER

    def set_deadline(self, row: int, deadline_ms: int) -> None:
        """Give a lease another deadline.

        Its entry in the index is at or before the old one, so a later deadline needs no other; but an old deadline that
        has come up, while all jobs of the lease had deadlines of their own, has no entry any more.
        """
        page, index = self.locate(row)
        before_ms = page.cells[CELLS * index + DEADLINE]
        page.cells[CELLS * index + DEADLINE] = deadline_ms
        if deadline_ms < before_ms or before_ms < page.next_ms:
            self.index(row, deadline_ms)

    def index(self, row: int, deadline_ms: int) -> None:
        """Index a lease under its deadline."""
        page = self.pages[row >> PAGE_BITS]
        if page.due is not None:
            page.add_due(row, deadline_ms)
        if deadline_ms < page.next_ms:
            self._plan(row >> PAGE_BITS, page, deadline_ms)

    def pop_due(self, deadline_ms: int, budget: StepBudget) -> int | None:
        """Return the lowest row of a lease whose deadline is ``deadline_ms``, the earliest of all; None without one, or
        where the budget is used up.

        It does not come up again: the caller ends that lease, or indexes it again.
        """
        heap = self._heap
        while heap and heap[0][0] <= deadline_ms and budget.left > 0:
            key = heap[0][1]
            page = self.pages.get(key)
            if page is None or page.next_ms > deadline_ms:
                heappop(heap)
                continue
            row = self._pop_due_of(key, page, deadline_ms, budget)
            if row is not None:
                return row
            heappop(heap)
            page.next_ms = NEVER
            if page.due:
                self._plan(key, page, page.due[0] >> PAGE_BITS)
                heap = self._heap
        return None

    def _pop_due_of(self, key: int, page: LeasePage, deadline_ms: int, budget: StepBudget) -> int | None:
        due = page.due
        if due is None:
            due = page.due = page.sort_deadlines()
            budget.left -= len(due) // _SORTED_PER_LOOK
        while due and due[0] >> PAGE_BITS <= deadline_ms:
            entry = due.pop(0)
            row = key << PAGE_BITS | entry & PAGE_MASK
            at_ms = self._common_deadline_ms(page, row)
            if at_ms == entry >> PAGE_BITS:
                return row
            budget.left -= 1
            if at_ms < NEVER:  # extended since
                page.add_due(row, at_ms)
        return None

    def _common_deadline_ms(self, page: LeasePage, row: int) -> int:
        """Return the deadline of a lease; NEVER where it is over, or where all its jobs have one of their own."""
        index = offset = row & PAGE_MASK
        if page.offsets is not None:
            index = page.find(row)
            if index == len(page.offsets) or page.offsets[index] != offset:
                return NEVER
        left = page.left[index]
        if not left or (self.apart and left == self.apart.get(row)):
            return NEVER
        return page.cells[CELLS * index + DEADLINE]

    def _plan(self, key: int, page: LeasePage, next_ms: int) -> None:
        page.next_ms = next_ms
        heappush(self._heap, (next_ms, key))
        if len(self._heap) > 2 * len(self.pages) + _STALE_MIN:
            self._heap = [(page.next_ms, key) for key, page in self.pages.items() if page.next_ms < NEVER]
            heapify(self._heap)

    # Pages

    def _open_page(self, page: LeasePage, number: int) -> LeasePage:
        key = -(-self._next_row >> PAGE_BITS)
        self._next_row = key << PAGE_BITS
        self.pages[key] = self._tail = page
        self._firsts.append(number)
        self._keys.append(key)
        return page

    def _drop_page(self, key: int) -> None:
        page = self.pages.pop(key)
        if page is self._tail:
            self._tail = None
        if self._isolated:
            self._leave(key, page.names)
        at = bisect_left(self._keys, key)
        del self._keys[at], self._firsts[at]

    def _leave(self, key: int, nodes: Iterable[str]) -> None:
        """Forget that nodes had leases in a page; it was dropped, or has none of theirs any more."""
        for node in nodes:
            keys = self._isolated.get(node)
            if keys is not None and keys.pop(key, 0) is None and not keys:
                del self._isolated[node]
