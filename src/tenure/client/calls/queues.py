"""Claim, ack, nack, extend and redrive: the life of a lease, from the worker's side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.json import Decoder

from tenure.client.calls.calling import posting, tell
from tenure.client.plan.encode import path_of, query_of, seqs_of
from tenure.client.plan.retry import Repeat
from tenure.client.plan.session import Core
from tenure.client.plan.steps import Plan
from tenure.client.transport.wire import Request
from tenure.contract.names import check_key, check_topic_name
from tenure.contract.replies import Claimed, Extended, Redriven, Settled
from tenure.contract.values import check_whole
from tenure.errors import Invalid

__all__ = ["ack", "claim", "detach", "extend", "nack", "redrive"]


class _Counted(msgspec.Struct):
    topic: str
    acked: int = 0
    nacked: int = 0
    skipped: list[int] = []
    ready: int = 0
    in_flight: int = 0


class _Detached(msgspec.Struct):
    streams: int = 0


_claimed = Decoder(Claimed)
_counted = Decoder(_Counted)
_detached = Decoder(_Detached)
_extended = Decoder(Extended)
_redriven = Decoder(Redriven)


def claim(
    core: Core,
    topic: str,
    *,
    node: str | None = None,
    max_count: int = 1,
    lease_ms: int | None = None,
    wait_ms: int = 0,
    claim_id: str | None = None,
    auto_ack: bool = False,
) -> Plan[Claimed]:
    """Lease up to ``max_count`` jobs; with ``wait_ms``, wait for some to come.

    The claim has an id, so that asking again after a lost answer gives the same jobs and burns no delivery. With
    ``auto_ack`` they are deleted as they are handed out: that is not repeated, and a lost answer is Indeterminate.
    """
    if claim_id is not None:
        check_key(claim_id, field="claim_id")
    fields = {
        "node": core.node_or(node),
        "max": check_whole(max_count, "max_count"),
        "lease_ms": lease_ms,
        "wait_ms": check_whole(wait_ms, "wait_ms"),
        "claim_id": claim_id if claim_id is not None or auto_ack else core.claim_id(),
        "auto_ack": auto_ack,
    }
    request = posting(path_of(topic, "claim"), fields, wait_ms=wait_ms)
    claimed, _ = yield from tell(core, request, _claimed, Repeat.NEVER if auto_ack else Repeat.SAFE)
    return claimed


def _whose(
    core: Core,
    seqs: Iterable[int] | None,
    *,
    node: str | None,
    lease_ids: Sequence[str] | None,
    lease_id: str | None,
    strict: bool,
) -> dict[str, Any]:
    """The fields that say which jobs are meant. Raises Invalid where none are."""
    if seqs is None and lease_id is None:
        raise Invalid("say which jobs: seqs, or a lease_id for all that it holds")
    listed = None if seqs is None else seqs_of(seqs)
    if lease_ids is not None and (listed is None or len(lease_ids) != len(listed)):
        raise Invalid("lease_ids must hold one lease id per seq")
    return {
        "node": core.node_or(node),
        "seqs": listed,
        "lease_ids": None if lease_ids is None else list(lease_ids),
        "lease_id": lease_id,
        "strict": strict,
    }


def _settle(core: Core, topic: str, verb: str, fields: Mapping[str, Any]) -> Plan[Settled]:
    said, repeated = yield from tell(core, posting(path_of(topic, verb), fields), _counted, Repeat.SAFE)
    return Settled(said.topic, said.acked or said.nacked, said.skipped, said.ready, said.in_flight, repeated)


def ack(
    core: Core,
    topic: str,
    seqs: Iterable[int] | None = None,
    *,
    node: str | None = None,
    lease_ids: Sequence[str] | None = None,
    lease_id: str | None = None,
    strict: bool = False,
) -> Plan[Settled]:
    """Complete jobs, which deletes them. What is not ours any more is skipped, or with ``strict`` raises LeaseLost."""
    whose = _whose(core, seqs, node=node, lease_ids=lease_ids, lease_id=lease_id, strict=strict)
    return (yield from _settle(core, topic, "ack", whose))


def nack(
    core: Core,
    topic: str,
    seqs: Iterable[int] | None = None,
    *,
    node: str | None = None,
    lease_ids: Sequence[str] | None = None,
    lease_id: str | None = None,
    strict: bool = False,
    delay_ms: int | None = None,
    reason: str | None = None,
    dead: bool = False,
) -> Plan[Settled]:
    """Give jobs back, now or after ``delay_ms``; with ``dead``, dead-letter them at once."""
    whose = _whose(core, seqs, node=node, lease_ids=lease_ids, lease_id=lease_id, strict=strict)
    return (yield from _settle(core, topic, "nack", whose | {"delay_ms": delay_ms, "reason": reason, "dead": dead}))


def extend(
    core: Core,
    topic: str,
    seqs: Iterable[int] | None = None,
    *,
    node: str | None = None,
    lease_ids: Sequence[str] | None = None,
    lease_id: str | None = None,
    strict: bool = False,
    lease_ms: int | None = None,
) -> Plan[Extended]:
    """Set the deadline of held jobs to now plus ``lease_ms``, by default the queue's own."""
    whose = _whose(core, seqs, node=node, lease_ids=lease_ids, lease_id=lease_id, strict=strict)
    request = posting(path_of(topic, "extend"), whose | {"lease_ms": lease_ms})
    extended, repeated = yield from tell(core, request, _extended, Repeat.SAFE)
    return msgspec.structs.replace(extended, repeated=True) if repeated else extended


def detach(core: Core, topic: str, *, node: str | None = None) -> Plan[int]:
    """End a node's work streams and leave their jobs leased to it; returns how many ended.

    So a worker stops taking and still finishes what it has.
    """
    request = Request("DELETE", query_of(path_of(topic, "work"), node=core.node_or(node)))
    detached, _ = yield from tell(core, request, _detached, Repeat.SAFE)
    return detached.streams


def redrive(
    core: Core,
    topic: str,
    *,
    to: str | None = None,
    match: str | Sequence[str] | None = None,
    seqs: Iterable[int] | None = None,
    reason_like: str | None = None,
    limit: int | None = None,
    reset_deliveries: bool = True,
) -> Plan[Redriven]:
    """Put dead letters back to work: all, or those that every condition takes. Never repeated after a lost answer."""
    fields = {
        "to": None if to is None else check_topic_name(to),
        "match": match,
        "seqs": None if seqs is None else seqs_of(seqs),
        "reason_like": reason_like,
        "limit": limit,
        "reset_deliveries": reset_deliveries,
    }
    redriven, _ = yield from tell(core, posting(path_of(topic, "redrive"), fields), _redriven, Repeat.NEVER)
    return redriven
