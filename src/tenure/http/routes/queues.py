"""Claim, ack, nack, return, begin, extend and redrive: the life of a lease over HTTP."""

from __future__ import annotations

from msgspec.structs import asdict

from tenure.contract.commands import Ack, Begin, Claim, Extend, Nack, Redrive, RedriveFields, Return
from tenure.contract.names import check_topic_name
from tenure.http.api.app import Call, Route
from tenure.http.api.auth import check_name
from tenure.http.api.body import Reader
from tenure.http.api.command import built, command, reaching
from tenure.http.api.context import Context
from tenure.http.api.queue_render import render_begun, render_claim, render_extended, render_settled
from tenure.http.api.render import as_fields

__all__ = ["ROUTES"]

_read_redrive = Reader(RedriveFields, optional=True).read


def redrive(_: Context, call: Call) -> Redrive:
    """Build the command that puts dead letters back to work.

    A letter names the queue that it came from, and every caller that may write can have written that name: so each
    letter is checked against the key's prefixes by the queue that it goes to (fault 47).
    """
    topic = check_topic_name(call.names["topic"])
    fields = _read_redrive(call.request)
    if fields.to is not None:
        check_name(call, check_topic_name(fields.to))
    return Redrive(topic=topic, **asdict(fields))


_BOTH, _WRITE, _ADMIN = frozenset({"read", "write"}), frozenset({"write"}), frozenset({"admin"})
_TOPIC = "/v0/topics/:topic"

_claim = command(Claim, render_claim, ends_with_peer=True)
_ack, _nack = command(Ack, render_settled(b"acked")), command(Nack, render_settled(b"nacked"))
_return, _begin = command(Return, render_settled(b"returned")), command(Begin, render_begun)
_extend, _redrive = command(Extend, render_extended), built(redrive, as_fields, bounds=reaching)

ROUTES = [
    Route("POST", f"{_TOPIC}/claim", _claim, _BOTH, Claim, "Lease jobs to a worker"),
    Route("POST", f"{_TOPIC}/ack", _ack, _WRITE, Ack, "Complete jobs, which deletes them"),
    Route("POST", f"{_TOPIC}/nack", _nack, _WRITE, Nack, "Give jobs back, now or later"),
    Route("POST", f"{_TOPIC}/return", _return, _WRITE, Return, "Give jobs back untried"),
    Route("POST", f"{_TOPIC}/begin", _begin, _WRITE, Begin, "Begin a suspect: its loss is a try"),
    Route("POST", f"{_TOPIC}/extend", _extend, _WRITE, Extend, "Push out the deadline of held jobs"),
    Route("POST", f"{_TOPIC}/redrive", _redrive, _ADMIN, RedriveFields, "Put dead letters to work"),
]
