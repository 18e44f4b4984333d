"""Claim, ack, nack, extend and redrive: the life of a lease over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from msgspec.structs import asdict

from tenure.broker.answer import Answer
from tenure.contract.commands import Ack, Claim, Extend, Nack, Redrive, RedriveFields
from tenure.contract.names import check_topic_name
from tenure.contract.replies import Grant
from tenure.http.api.app import Call, Route
from tenure.http.api.auth import check_name, visible
from tenure.http.api.body import Reader, addressed
from tenure.http.api.context import Context
from tenure.http.api.queue_render import claimed, extended, redriven, settled, when_durable
from tenure.http.wire.message import Later, Request, Response, Result

__all__ = ["ROUTES"]

_read_claim = Reader(Claim).read
_read_ack = Reader(Ack).read
_read_nack = Reader(Nack).read
_read_extend = Reader(Extend).read
_read_redrive = Reader(RedriveFields, optional=True).read
_acked = settled(b"acked")
_nacked = settled(b"nacked")


def claim(context: Context, call: Call) -> Result:
    """Lease jobs to a worker; with ``wait_ms``, wait for some to come."""
    request = call.request
    answer = context.broker.run_claim(addressed(call, _read_claim))
    if isinstance(answer, Answer):
        return Later(answer, lambda reply: claimed(request, reply))
    return _claim_later(request, answer)


async def _claim_later(request: Request, answer: Awaitable[Grant]) -> Response:
    return claimed(request, await answer)


def ack(context: Context, call: Call) -> Later[Any]:
    """Complete jobs, which deletes them."""
    return when_durable(call.request, context.broker.run(addressed(call, _read_ack)), _acked)


def nack(context: Context, call: Call) -> Later[Any]:
    """Give jobs back."""
    return when_durable(call.request, context.broker.run(addressed(call, _read_nack)), _nacked)


def extend(context: Context, call: Call) -> Later[Any]:
    """Set the deadline of held jobs to now plus ``lease_ms``."""
    return when_durable(call.request, context.broker.run(addressed(call, _read_extend)), extended)


def redrive(context: Context, call: Call) -> Later[Any]:
    """Put dead letters back to work. A letter names the queue it came from, and anybody who may write can have written
    that name: so each one is held to the key's prefixes (fault 47).
    """
    request, topic = call.request, check_topic_name(call.names["topic"])
    body = _read_redrive(request)
    if body.to is not None:
        check_name(call, check_topic_name(body.to))
    command = Redrive(topic=topic, reaches=lambda name: visible(call, name), **asdict(body))
    return when_durable(request, context.broker.run(command), redriven)


_BOTH = frozenset({"read", "write"})
_WRITE = frozenset({"write"})
_ADMIN = frozenset({"admin"})

ROUTES = [
    Route("POST", "/v0/topics/:topic/claim", claim, _BOTH, Claim, "Lease jobs to a worker"),
    Route("POST", "/v0/topics/:topic/ack", ack, _WRITE, Ack, "Complete jobs, which deletes them"),
    Route("POST", "/v0/topics/:topic/nack", nack, _WRITE, Nack, "Give jobs back, now or later"),
    Route("POST", "/v0/topics/:topic/extend", extend, _WRITE, Extend, "Push out the deadline of held jobs"),
    Route(
        "POST", "/v0/topics/:topic/redrive", redrive, frozenset({"admin"}), RedriveFields, "Put dead letters to work"
    ),
]
