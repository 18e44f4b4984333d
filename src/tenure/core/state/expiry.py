"""Expiry: the leases of a queue end whose deadline has passed.

One that isolates is lost then, because its worker did not answer for it: no try is counted unless the job was begun.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING

from tenure.contract.config import Backoff
from tenure.core.backoff import delay_ms
from tenure.core.state.delays import NEVER
from tenure.core.state.deliveries import Delivery
from tenure.core.state.lease import Ended
from tenure.core.state.lease_table import EPOCH_SHIFT
from tenure.core.state.ranges import to_runs
from tenure.core.state.step_budget import StepBudget

if TYPE_CHECKING:
    from tenure.core.state.queue import Queue

__all__ = ["end_leases"]


def end_leases(
    queue: Queue, backoff: Backoff | None, ended: list[Ended] | None, now_ms: int, budget: StepBudget, *, epoch: int
) -> int:
    """End the leases of jobs whose deadline is the earliest, which has passed, while the budget lasts.

    They end in the order in which their leases were given, and by seq: the same in however many steps. Return the
    lowest seq that came back, or NEVER: a deadline may have been extended.
    """
    deadline_ms, lowest = queue.next_deadline_ms(), NEVER
    for row, seqs in _take_due(queue, deadline_ms, budget):
        end = _expire(queue, row, seqs, backoff, deadline_ms=deadline_ms, now_ms=now_ms, epoch=epoch)
        lowest = min(lowest, seqs[0])
        if ended is not None:
            ended.append(end)
    return lowest


def _take_due(queue: Queue, deadline_ms: int, budget: StepBudget) -> Iterator[tuple[int, list[int]]]:
    """Yield leases with jobs that have this deadline, and those jobs, ascending; the caller ends them.

    Nothing is yielded after the budget is used up: which lease is the next is not known then.
    """
    leases, own = queue.leases, queue.own_deadlines
    row, own_row = leases.pop_due(deadline_ms, budget), own.next_row(deadline_ms, budget)
    while budget.left > 0:
        if row is not None and (own_row is None or row <= own_row):
            seqs = list(queue.each_of(row))
            if row in leases.apart:
                seqs = [seq for seq in seqs if own.get(seq, deadline_ms) <= deadline_ms]
            yield row, seqs
            row = leases.pop_due(deadline_ms, budget)
        elif own_row is not None:
            seqs = own.take_due(own_row, deadline_ms, budget)
            yield own_row, seqs
        else:
            return
        budget.left -= len(seqs)
        own_row = own.next_row(deadline_ms, budget)
    if row is not None:
        leases.index(row, deadline_ms)


def _expire(
    queue: Queue, row: int, seqs: list[int], backoff: Backoff | None, *, deadline_ms: int, now_ms: int, epoch: int
) -> Ended:
    """End the lease of these jobs, which reached their deadline."""
    number, since_ms, _, _ = queue.leases.cells(row)
    node, isolates = queue.leases.node(row), queue.leases.group(row) is not None
    is_lost = isolates and number >> EPOCH_SHIFT == epoch
    delivery = Delivery(number, node, since_ms, deadline_ms, "lost" if is_lost else "expired")
    dues_ms: list[int] = []
    for seq in seqs:
        queue.record_delivery(seq, delivery)
        if is_lost:
            dues_ms.append(deadline_ms + queue.lose(seq))
        elif isolates:
            queue.suspects.spare(seq)
            dues_ms.append(deadline_ms)
        elif backoff is not None:
            dues_ms.append(deadline_ms + delay_ms(backoff, deliveries=queue.tries(seq), seq=seq))
    runs = [seqs[0], 1] if len(seqs) == 1 else to_runs(seqs)
    for i in range(0, len(runs), 2):
        queue.take_out(runs[i], runs[i + 1])
    for seq, due_ms in zip_longest(seqs, dues_ms, fillvalue=deadline_ms):
        queue.make_ready_at(seq, due_ms, now_ms=now_ms)
    queue.expired += len(seqs)
    return Ended(number, node, deadline_ms, runs, delivery.end)
