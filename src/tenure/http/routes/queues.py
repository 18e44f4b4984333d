"""Claim, ack, nack, extend and redrive: the life of a lease over HTTP, as seed 003 and section 9 say."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from tenure.broker.answer import Answer
from tenure.contract.replies import Grant
from tenure.core.names import check_topic_name
from tenure.http.app import Call, Route
from tenure.http.auth import check_name, visible
from tenure.http.body import Reader
from tenure.http.context import Context
from tenure.http.message import Later, Request, Response, Result
from tenure.http.queue_render import claimed, extended, redriven, settled, when_durable
from tenure.http.queue_schemas import AckBody, ClaimBody, ExtendBody, NackBody, RedriveBody

__all__ = ["ROUTES"]

_read_claim = Reader(ClaimBody).read
_read_ack = Reader(AckBody).read
_read_nack = Reader(NackBody).read
_read_extend = Reader(ExtendBody).read
_read_redrive = Reader(RedriveBody, optional=True).read
_acked = settled(b"acked")
_nacked = settled(b"nacked")


def claim(context: Context, call: Call) -> Result:
    """Lease jobs to a worker; with ``wait_ms``, wait for some to come."""
    request, topic = call.request, check_topic_name(call.names["topic"])
    body = _read_claim(request)
    answer: Awaitable[Grant] = context.broker.claim(
        topic,
        node=body.node,
        max_count=body.max,
        lease_ms=body.lease_ms,
        wait_ms=body.wait_ms,
        claim_id=body.claim_id,
        auto_ack=body.auto_ack,
    )
    if isinstance(answer, Answer):
        return Later(answer, lambda reply: claimed(request, reply))
    return _claim_later(request, answer)


async def _claim_later(request: Request, answer: Awaitable[Grant]) -> Response:
    return claimed(request, await answer)


def ack(context: Context, call: Call) -> Later[Any]:
    """Complete jobs, which deletes them."""
    request, topic = call.request, check_topic_name(call.names["topic"])
    body = _read_ack(request)
    answer = context.broker.ack(
        topic,
        node=body.node,
        seqs=body.seqs,
        lease_ids=body.lease_ids,
        lease_id=body.lease_id,
        strict=body.strict,
    )
    return when_durable(request, answer, _acked)


def nack(context: Context, call: Call) -> Later[Any]:
    """Give jobs back."""
    request, topic = call.request, check_topic_name(call.names["topic"])
    body = _read_nack(request)
    answer = context.broker.nack(
        topic,
        node=body.node,
        seqs=body.seqs,
        lease_ids=body.lease_ids,
        lease_id=body.lease_id,
        strict=body.strict,
        delay_ms=body.delay_ms,
        reason=body.reason,
        dead=body.dead,
    )
    return when_durable(request, answer, _nacked)


def extend(context: Context, call: Call) -> Later[Any]:
    """Set the deadline of held jobs to now plus ``lease_ms``."""
    request, topic = call.request, check_topic_name(call.names["topic"])
    body = _read_extend(request)
    answer = context.broker.extend(
        topic,
        node=body.node,
        seqs=body.seqs,
        lease_ids=body.lease_ids,
        lease_id=body.lease_id,
        strict=body.strict,
        lease_ms=body.lease_ms,
    )
    return when_durable(request, answer, extended)


def redrive(context: Context, call: Call) -> Later[Any]:
    """Put dead letters back to work. A letter names the queue it came from, and anybody who may write can have written
    that name: so each one is held to the key's prefixes (fault 47).
    """
    request, topic = call.request, check_topic_name(call.names["topic"])
    body = _read_redrive(request)
    if body.to is not None:
        check_name(call, check_topic_name(body.to))
    answer = context.broker.redrive(
        topic,
        to=body.to,
        match=body.match,
        seqs=body.seqs,
        reason_like=body.reason_like,
        limit=body.limit,
        reset_deliveries=body.reset_deliveries,
        reaches=lambda name: visible(call, name),
    )
    return when_durable(request, answer, redriven)


_BOTH = frozenset({"read", "write"})
_WRITE = frozenset({"write"})

ROUTES = [
    Route("POST", "/v0/topics/:topic/claim", claim, _BOTH, ClaimBody, "Lease jobs to a worker"),
    Route("POST", "/v0/topics/:topic/ack", ack, _WRITE, AckBody, "Complete jobs, which deletes them"),
    Route("POST", "/v0/topics/:topic/nack", nack, _WRITE, NackBody, "Give jobs back, now or later"),
    Route("POST", "/v0/topics/:topic/extend", extend, _WRITE, ExtendBody, "Push out the deadline of held jobs"),
    Route("POST", "/v0/topics/:topic/redrive", redrive, frozenset({"admin"}), RedriveBody, "Put dead letters to work"),
]
