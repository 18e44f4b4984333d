"""What becomes of the jobs of one claim, as plans.

A lease does not look away: where a job turns out not to be ours any more it raises LeaseLost, and where an answer was
lost and a repeat skips a job, nobody can tell whose doing that was, so it raises Indeterminate (faults 27, 40).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Generic, NoReturn, TypeVar

from tenure.client.calls import queues
from tenure.client.calls.requests import request_of
from tenure.client.lease.held_job import HeldJob
from tenure.client.plan.encode import path_of
from tenure.client.plan.session import Session
from tenure.client.plan.steps import Plan, Send
from tenure.client.transport.wire import WireError
from tenure.contract.commands import Nack
from tenure.contract.replies import Claimed, Settled
from tenure.errors import Indeterminate, Invalid, LeaseLost, TenureError

__all__ = ["Leased", "ack", "extend", "leave", "nack"]

T = TypeVar("T")
_REASON_CHARS_MAX = 250


class Leased(Generic[T]):
    """What a lease is made of. ``held`` are the jobs neither settled nor lost, by seq."""

    def __init__(self, session: Session, claimed: Claimed, *, node: str, type: Any) -> None:
        self.session = session
        self.topic = claimed.topic
        self.node = node
        self.lease_id = claimed.lease_id
        self.jobs: list[HeldJob[T]] = [HeldJob(job, type) for job in claimed.jobs]
        self.held = {job.seq: job for job in self.jobs} if claimed.lease_id is not None else {}
        self.deadline = min((job.deadline or 0 for job in claimed.jobs), default=0)

    def chosen(self, jobs: Iterable[int | HeldJob[T]] | None) -> list[int]:
        """The seqs that a call is about: those given, or all that are held. Raises Invalid for others."""
        if jobs is None:
            return list(self.held)
        seqs = [job if isinstance(job, int) else job.seq for job in jobs]
        known = {job.seq for job in self.jobs}
        if not known.issuperset(seqs):
            raise Invalid("that job is not of this lease")
        return seqs

    def forget(self, seqs: Iterable[int]) -> None:
        """These are not held any more."""
        for seq in seqs:
            self.held.pop(seq, None)


def _refuse(lease: Leased[Any], skipped: list[int], *, repeated: bool) -> NoReturn:
    """Say that jobs were not ours."""
    if repeated:
        message = f"an answer was lost, and the repeat skipped {len(skipped)} jobs: perhaps the first copy settled them"
        raise Indeterminate(message, skipped=skipped)
    message = f"{len(skipped)} jobs of {lease.topic!r} are not ours any more: stop working on them"
    raise LeaseLost(message, skipped=skipped)


def _settled(lease: Leased[Any], seqs: list[int], settled: Settled) -> int:
    lease.forget(seqs)
    if settled.skipped:
        _refuse(lease, settled.skipped, repeated=settled.repeated)
    return settled.count


def ack(lease: Leased[Any], jobs: Iterable[int | HeldJob[Any]] | None = None) -> Plan[int]:
    """Complete jobs of this lease, by default all that it still holds; returns how many.

    Raises LeaseLost where some were not ours any more (the others are done), Indeterminate where that cannot be known.
    """
    seqs = lease.chosen(jobs)
    if not seqs:
        return 0
    call = queues.ack(lease.session, lease.topic, seqs, node=lease.node, lease_id=lease.lease_id)
    return _settled(lease, seqs, (yield from call))


def nack(
    lease: Leased[Any],
    jobs: Iterable[int | HeldJob[Any]] | None = None,
    *,
    delay_ms: int | None = None,
    reason: str | None = None,
    dead: bool = False,
) -> Plan[int]:
    """Give jobs of this lease back, by default all that it still holds; returns how many. Raises as `ack`."""
    seqs = lease.chosen(jobs)
    if not seqs:
        return 0
    call = queues.nack(
        lease.session,
        lease.topic,
        seqs,
        node=lease.node,
        lease_id=lease.lease_id,
        delay_ms=delay_ms,
        reason=reason,
        dead=dead,
    )
    return _settled(lease, seqs, (yield from call))


def extend(lease: Leased[Any], *, lease_ms: int | None = None) -> Plan[int]:
    """Keep everything still held for ``lease_ms`` from now (the queue's own by default); returns the new deadline.

    Raises LeaseLost where some were not ours any more; the others are extended.
    """
    seqs = list(lease.held)
    if not seqs:
        return lease.deadline
    call = queues.extend(lease.session, lease.topic, seqs, node=lease.node, lease_id=lease.lease_id, lease_ms=lease_ms)
    extended = yield from call
    lease.deadline = min(extended.deadlines.values(), default=lease.deadline)
    if extended.skipped:  # a repeated extend skips nothing that the first one held: these are lost
        lease.forget(extended.skipped)
        _refuse(lease, extended.skipped, repeated=False)
    return lease.deadline


def leave(lease: Leased[Any], error: BaseException | None) -> Plan[None]:
    """The end of a ``with``: ack what is held where all went well, give it back where not."""
    if error is None:
        yield from ack(lease)
    elif isinstance(error, Exception):
        with suppress(TenureError):  # what happened inside matters more; the lease ends by itself
            yield from nack(lease, reason=f"{type(error).__name__}: {error}"[:_REASON_CHARS_MAX])
    else:
        yield from _drop(lease)


def _drop(lease: Leased[Any]) -> Plan[None]:
    """Give back what is held by one short attempt, because a cancellation or an interrupt must not be held up."""
    seqs = list(lease.held)
    if seqs:
        lease.forget(seqs)
        command = Nack(node=lease.node, seqs=seqs, lease_id=lease.lease_id)
        path, settings = path_of(lease.topic, "nack"), lease.session.settings
        with suppress(WireError):
            yield Send(request_of(path, command, step_ms_max=settings.leave_ms))
