"""Claim, ack, nack, return, begin, extend and redrive: the calls of a worker about jobs on a lease."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict, Unpack

import msgspec
from msgspec.json import Decoder

from tenure.client.calls.requests import call, request_of
from tenure.client.plan.encode import list_seqs, path_of, query_of
from tenure.client.plan.session import Session
from tenure.client.plan.steps import Plan
from tenure.client.transport.wire import Request
from tenure.contract.commands import Ack, Begin, Claim, Extend, Nack, RedriveFields, Return
from tenure.contract.names import check_key, check_topic_name
from tenure.contract.options import ClaimOptions, LeaseOptions, RedriveOptions
from tenure.contract.repeat import Repeat
from tenure.contract.replies import BegunJob, Claimed, Extended, Redriven, Settled
from tenure.contract.values import check_whole
from tenure.errors import Invalid

__all__ = ["ack", "begin", "claim", "detach", "extend", "nack", "redrive", "return_jobs"]


class _Counted(msgspec.Struct):
    """The reply to an ack or a nack, which names its count after the call."""

    topic: str
    acked: int = 0
    nacked: int = 0
    returned: int = 0
    skipped: list[int] = []
    ready: int = 0
    in_flight: int = 0


class _Detached(msgspec.Struct):
    streams: int = 0


_begun = Decoder(BegunJob)
_claimed = Decoder(Claimed)
_counted = Decoder(_Counted)
_detached = Decoder(_Detached)
_extended = Decoder(Extended)
_redriven = Decoder(Redriven)


def claim(session: Session, topic: str, *, node: str | None = None, **options: Unpack[ClaimOptions]) -> Plan[Claimed]:
    """Lease up to ``max_count`` jobs; with ``wait_ms``, wait for some to come.

    The claim has an id, so that a retry after a lost answer returns the same jobs and counts no second delivery. With
    ``auto_ack`` they are deleted as they are handed out: that is not repeated, and a lost answer is Indeterminate.
    """
    command = Claim(node=session.node_or(node), **options)
    check_whole(command.max_count, "max_count")
    check_whole(command.wait_ms, "wait_ms")
    if command.claim_id is not None:
        check_key(command.claim_id, field="claim_id")
    elif not command.auto_ack:
        command = msgspec.structs.replace(command, claim_id=session.claim_id())
    request = request_of(path_of(topic, "claim"), command, wait_ms=command.wait_ms)
    claimed, _ = yield from call(session, request, _claimed, Repeat.NEVER if command.auto_ack else command.repeat)
    return claimed


class _HeldJobs(TypedDict):
    """The fields of an ack, a nack or an extend that name its jobs."""

    node: str
    seqs: list[int] | None
    lease_ids: list[str] | None
    lease_id: str | None
    strict: bool


def _held_jobs(
    session: Session,
    seqs: Iterable[int] | None,
    *,
    node: str | None,
    lease_ids: Sequence[str] | None = None,
    lease_id: str | None = None,
    strict: bool = False,
) -> _HeldJobs:
    """Return the fields that name the jobs. Raises Invalid where none are named."""
    if seqs is None and lease_id is None:
        raise Invalid("say which jobs: seqs, or a lease_id for all that it holds")
    listed = None if seqs is None else list_seqs(seqs)
    if lease_ids is not None and (listed is None or len(lease_ids) != len(listed)):
        raise Invalid("lease_ids must hold one lease id per seq")
    return {
        "node": session.node_or(node),
        "seqs": listed,
        "lease_ids": None if lease_ids is None else list(lease_ids),
        "lease_id": lease_id,
        "strict": strict,
    }


def _settle(session: Session, topic: str, verb: str, command: Ack | Nack | Return) -> Plan[Settled]:
    request = request_of(path_of(topic, verb), command)
    counted, repeated = yield from call(session, request, _counted, command.repeat)
    count = counted.acked or counted.nacked or counted.returned
    return Settled(counted.topic, count, counted.skipped, counted.ready, counted.in_flight, repeated)


def ack(
    session: Session,
    topic: str,
    seqs: Iterable[int] | None = None,
    *,
    node: str | None = None,
    **leases: Unpack[LeaseOptions],
) -> Plan[Settled]:
    """Complete jobs, which deletes them. A job that the node no longer holds is skipped, or with ``strict`` raises
    LeaseLost.
    """
    command = Ack(**_held_jobs(session, seqs, node=node, **leases))
    return (yield from _settle(session, topic, "ack", command))


def nack(
    session: Session,
    topic: str,
    seqs: Iterable[int] | None = None,
    *,
    node: str | None = None,
    delay_ms: int | None = None,
    reason: str | None = None,
    dead: bool = False,
    **leases: Unpack[LeaseOptions],
) -> Plan[Settled]:
    """Give jobs back, now or after ``delay_ms``; with ``dead``, dead-letter them at once."""
    held = _held_jobs(session, seqs, node=node, **leases)
    command = Nack(delay_ms=delay_ms, reason=reason, dead=dead, **held)
    return (yield from _settle(session, topic, "nack", command))


def return_jobs(
    session: Session,
    topic: str,
    seqs: Iterable[int] | None = None,
    *,
    node: str | None = None,
    delay_ms: int = 0,
    reason: str | None = None,
    **leases: Unpack[LeaseOptions],
) -> Plan[Settled]:
    """Give jobs back, now or after ``delay_ms``, because this delivery was no try: they were not run to an end."""
    command = Return(delay_ms=delay_ms, reason=reason, **_held_jobs(session, seqs, node=node, **leases))
    return (yield from _settle(session, topic, "return", command))


def begin(session: Session, topic: str, seq: int, *, lease_id: str, node: str | None = None) -> Plan[BegunJob]:
    """Begin a suspect, before anything of it is run: if its worker is lost now, that is a try of this job.

    Raises LeaseLost where it is not held under that lease, Conflict (``busy``) while the group of the lease has another
    job begun.
    """
    command = Begin(node=session.node_or(node), seq=seq, lease_id=lease_id)
    begun, _ = yield from call(session, request_of(path_of(topic, "begin"), command), _begun, command.repeat)
    return begun


def extend(
    session: Session,
    topic: str,
    seqs: Iterable[int] | None = None,
    *,
    node: str | None = None,
    lease_ms: int | None = None,
    **leases: Unpack[LeaseOptions],
) -> Plan[Extended]:
    """Set the deadline of held jobs to now plus ``lease_ms``, by default the queue's own."""
    command = Extend(lease_ms=lease_ms, **_held_jobs(session, seqs, node=node, **leases))
    request = request_of(path_of(topic, "extend"), command)
    extended, repeated = yield from call(session, request, _extended, command.repeat)
    return msgspec.structs.replace(extended, repeated=True) if repeated else extended


def detach(session: Session, topic: str, *, node: str | None = None) -> Plan[int]:
    """End a node's work streams and leave their jobs leased to it; return how many ended.

    A worker that drains calls this: it gets no more jobs and finishes those that it has.
    """
    request = Request("DELETE", query_of(path_of(topic, "work"), node=session.node_or(node)))
    detached, _ = yield from call(session, request, _detached, Repeat.SAFE)
    return detached.streams


def redrive(
    session: Session, topic: str, *, seqs: Iterable[int] | None = None, **options: Unpack[RedriveOptions]
) -> Plan[Redriven]:
    """Put dead letters back to work: all, or those that meet every condition. Never repeated after a lost answer."""
    command = RedriveFields(seqs=None if seqs is None else list_seqs(seqs), **options)
    if command.to is not None:
        check_topic_name(command.to)
    redriven, _ = yield from call(session, request_of(path_of(topic, "redrive"), command), _redriven, command.repeat)
    return redriven
