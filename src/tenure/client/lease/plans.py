"""The plans of a lease: ack, nack, extend, and the end of its ``with``.

They raise LeaseLost where a job is no longer held. Where an answer was lost and the retry skips a job, the first copy
may have settled it, so they raise Indeterminate (faults 27, 40).
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

__all__ = ["Leased", "ack", "extend", "nack", "settle_on_exit"]

T = TypeVar("T")
_REASON_CHARS_MAX = 250


class Leased(Generic[T]):
    """The context of a lease handle. ``held`` are the jobs neither settled nor lost, by seq."""

    def __init__(self, session: Session, claimed: Claimed, *, node: str, type: Any) -> None:
        self.session = session
        self.topic = claimed.topic
        self.node = node
        self.lease_id = claimed.lease_id
        self.jobs: list[HeldJob[T]] = [HeldJob(job, type) for job in claimed.jobs]
        self.held = {job.seq: job for job in self.jobs} if claimed.lease_id is not None else {}
        self.deadline = min((job.deadline or 0 for job in claimed.jobs), default=0)

    def select_seqs(self, jobs: Iterable[int | HeldJob[T]] | None) -> list[int]:
        """Return the seqs of a call: those given, or all that are held. Raises Invalid for a job of another lease."""
        if jobs is None:
            return list(self.held)
        seqs = [job if isinstance(job, int) else job.seq for job in jobs]
        known = {job.seq for job in self.jobs}
        if not known.issuperset(seqs):
            raise Invalid("that job is not of this lease")
        return seqs

    def forget(self, seqs: Iterable[int]) -> None:
        """Drop jobs from those that are held."""
        for seq in seqs:
            self.held.pop(seq, None)


def _raise_lost(lease: Leased[Any], skipped: list[int], *, repeated: bool) -> NoReturn:
    """Raise LeaseLost for skipped jobs, or Indeterminate after a repeat."""
    if repeated:
        message = f"an answer was lost, and the repeat skipped {len(skipped)} jobs: perhaps the first copy settled them"
        raise Indeterminate(message, skipped=skipped)
    message = f"{len(skipped)} jobs of {lease.topic!r} are not ours any more: stop working on them"
    raise LeaseLost(message, skipped=skipped)


def _settled(lease: Leased[Any], seqs: list[int], settled: Settled) -> int:
    lease.forget(seqs)
    if settled.skipped:
        _raise_lost(lease, settled.skipped, repeated=settled.repeated)
    return settled.count


def ack(lease: Leased[Any], jobs: Iterable[int | HeldJob[Any]] | None = None) -> Plan[int]:
    """Complete jobs of this lease, by default all that it still holds; return how many.

    Raises LeaseLost where some were no longer held (the others are done), Indeterminate where that cannot be known.
    """
    seqs = lease.select_seqs(jobs)
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
    """Give jobs of this lease back, by default all that it still holds; return how many. Raises as `ack`."""
    seqs = lease.select_seqs(jobs)
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
    """Keep everything still held for ``lease_ms`` from now (the queue's own by default); return the new deadline.

    Raises LeaseLost where some were no longer held; the others are extended.
    """
    seqs = list(lease.held)
    if not seqs:
        return lease.deadline
    call = queues.extend(lease.session, lease.topic, seqs, node=lease.node, lease_id=lease.lease_id, lease_ms=lease_ms)
    extended = yield from call
    lease.deadline = min(extended.deadlines.values(), default=lease.deadline)
    if extended.skipped:  # a retry of an extend skips nothing that the first copy held: these jobs are lost
        lease.forget(extended.skipped)
        _raise_lost(lease, extended.skipped, repeated=False)
    return lease.deadline


def settle_on_exit(lease: Leased[Any], error: BaseException | None) -> Plan[None]:
    """End a ``with``: ack the jobs still held, or give them back where the block raised."""
    if error is None:
        yield from ack(lease)
    elif isinstance(error, Exception):
        with suppress(TenureError):  # the error of the block matters more; the lease expires by itself
            yield from nack(lease, reason=f"{type(error).__name__}: {error}"[:_REASON_CHARS_MAX])
    else:
        yield from _release_once(lease)


def _release_once(lease: Leased[Any]) -> Plan[None]:
    """Give back the held jobs by one short attempt, so that a cancellation or an interrupt is not delayed."""
    seqs = list(lease.held)
    if seqs:
        lease.forget(seqs)
        command = Nack(node=lease.node, seqs=seqs, lease_id=lease.lease_id)
        path, settings = path_of(lease.topic, "nack"), lease.session.settings
        with suppress(WireError):
            yield Send(request_of(path, command, step_ms_max=settings.leave_ms))
