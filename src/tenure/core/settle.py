"""Which of the seqs a worker names it really holds. Acks, nacks and extends all ask this first."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.contract.leases import parse_lease_id
from tenure.core.lease import Lease
from tenure.core.names import shown
from tenure.core.queue import Queue
from tenure.core.topic import Topic
from tenure.errors import Invalid, LeaseLost

__all__ = ["Holding", "sift"]

Holding = tuple[list[int], list[int]]
"""The seqs that are the caller's under a live lease, and those that are not."""


def sift(
    topic: Topic,
    queue: Queue,
    node: str,
    seqs: Sequence[int] | None,
    lease_ids: Sequence[str] | None = None,
    lease: str | None = None,
    strict: bool = False,
) -> Holding:
    """Tell the seqs that ``node`` holds from those it does not. The caller has let time pass.

    ``lease`` alone stands for everything still held under it; with ``seqs`` it fences them all; ``lease_ids`` fence
    one each. ``strict`` raises LeaseLost if a seq that is still alive is not the caller's; a seq already gone is only
    skipped.
    """
    if lease is None and lease_ids is None and seqs is not None and not strict:
        return _by_node(queue, node, seqs)
    number = parse_lease_id(lease) if lease is not None else None
    if seqs is None:
        assert number is not None, "the caller gives seqs or a lease"
        first = queue.leases.get(number)
        return (queue.held(number), []) if first is not None and first.node == node else ([], [])
    if lease_ids is None and number is None:
        holding = _by_node(queue, node, seqs)
    else:
        fences = [number] * len(seqs) if lease_ids is None else _fences(lease_ids, len(seqs), number)
        holding = _by_lease(queue, node, seqs, fences)
    if strict:
        _check_strict(topic, holding[1])
    return holding


def _by_node(queue: Queue, node: str, seqs: Sequence[int]) -> Holding:
    in_flight = queue.in_flight
    if len(seqs) == 1:
        lease = in_flight.get(seqs[0])
        return (list(seqs), []) if lease is not None and lease.node == node else ([], [seqs[0]])
    holders: set[Lease | None] = set(map(in_flight.get, seqs))
    if len(holders) == 1:  # the usual case: one worker settles one claim
        (holder,) = holders
        if holder is not None and holder.node == node:
            return (list(seqs), [])
    held: list[int] = []
    skipped: list[int] = []
    for seq in seqs:
        lease = in_flight.get(seq)
        (held if lease is not None and lease.node == node else skipped).append(seq)
    return (held, skipped)


def _by_lease(queue: Queue, node: str, seqs: Sequence[int], fences: Sequence[int | None]) -> Holding:
    held: list[int] = []
    skipped: list[int] = []
    for seq, fence in zip(seqs, fences, strict=True):
        lease = queue.in_flight.get(seq)
        mine = lease is not None and lease.node == node and lease.number == fence
        (held if mine else skipped).append(seq)
    return (held, skipped)


def _fences(lease_ids: Sequence[str], seq_count: int, number: int | None) -> list[int | None]:
    if not isinstance(lease_ids, (list, tuple)):
        raise Invalid(f"lease_ids must be a list of lease ids; got {shown(lease_ids)}")
    if len(lease_ids) != seq_count:
        raise Invalid(
            f"lease_ids has {len(lease_ids)} entries for {seq_count} seqs: give one per seq, in the same order"
        )
    fences = [parse_lease_id(value) for value in lease_ids]
    return [fence if number is None or fence == number else 0 for fence in fences]


def _check_strict(topic: Topic, skipped: list[int]) -> None:
    lost = [seq for seq in skipped if not topic.is_dead(seq)]
    if lost:
        raise LeaseLost(
            f"{len(lost)} of the seqs are not held by the caller any more: stop working on them; nothing was changed",
            skipped=lost,
        )
