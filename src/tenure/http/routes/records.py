"""Routes of records: append, read, delete."""

from __future__ import annotations

from typing import Final

from tenure.contract import commands
from tenure.contract.bodies import AppendBody, DiffBody
from tenure.contract.config_body import config_fields
from tenure.contract.names import check_topic_name
from tenure.contract.replies import Difference, Produced
from tenure.errors import Denied, NotFound
from tenure.http.api.app import Call, Route
from tenure.http.api.auth import check_name, may_configure
from tenure.http.api.body import Reader
from tenure.http.api.command import command, sharing
from tenure.http.api.context import Context
from tenure.http.api.query import Query
from tenure.http.api.render import as_fields, gap_text, performance, record
from tenure.http.append.body import read_append
from tenure.http.append.long_work import finish
from tenure.http.append.request import Append, Steps
from tenure.http.wire.message import Later, Request, Response, Result

__all__ = ["ROUTES"]

_AT_ONCE_BYTES_MAX: Final = 16 * 1024
"""A body that needs a closer look is read at once up to this size."""

_diff = Reader(DiffBody, optional=True)


def append(context: Context, call: Call) -> Result:
    """Append records: contiguous seqs for all of them, or none."""
    request = call.request
    with_seqs = not request.query or Query(request).flag("return_seqs", True)
    given = read_append(request, context.append_limits)
    if isinstance(given, Append):
        return _produce(context, call, given, with_seqs=with_seqs)
    if len(request.body) <= _AT_ONCE_BYTES_MAX:
        return _produce(context, call, finish(given), with_seqs=with_seqs)
    return _produce_in_turns(context, call, given, with_seqs=with_seqs)


async def _produce_in_turns(context: Context, call: Call, steps: Steps, *, with_seqs: bool) -> Later[Produced]:
    return _produce(context, call, await context.turns.run(steps), with_seqs=with_seqs)


def _produce(context: Context, call: Call, given: Append, *, with_seqs: bool) -> Later[Produced]:
    request, body = call.request, given.body
    if body.config is not None and body.config.dead_letter is not None:
        check_name(call, check_topic_name(body.config.dead_letter))
    may_create = body.config is None or may_configure(call)
    key, broker = body.idempotency_key, context.broker
    try:
        produce = commands.Append(
            topic=call.names["topic"],
            records=given.records,
            node=body.node,
            idempotency_key=key if key is not None else request.headers.get("idempotency-key"),
            client_id=body.client_id,
            client_seq=body.client_seq,
            create=body.create and may_create,
            config=None if body.config is None else config_fields(body.config),
        )
        answer = broker.run(produce, sharing(call, context.shares, broker))
    except NotFound:
        if may_create or not body.create:
            raise
        raise _no_admin(call.names["topic"]) from None
    return Later(answer, _produced if with_seqs else _produced_without_seqs)


def _no_admin(topic: str) -> Denied:
    return Denied(
        f"there is no topic {topic!r}, and this key lacks the scope admin, which creating one with a config needs: "
        "have it created first, or leave config out",
        missing=["admin"],
    )


def _produced(call: Call, produced: Produced, fsync_ms: float) -> Response:
    if produced.count == 1:
        seqs = b'"seqs":[%d],' % produced.first_seq
    else:
        seqs = b'"seqs":[%b],' % b",".join([b"%d" % seq for seq in produced.seqs])
    return _produced_without_seqs(call, produced, fsync_ms, seqs=seqs)


def _produced_without_seqs(call: Call, produced: Produced, fsync_ms: float, *, seqs: bytes = b"") -> Response:
    body = b'{"topic":"%b","first_seq":%d,"last_seq":%d,%b"head_seq":%d,"count":%d,"created":%b,"deduped":%b,%b}' % (
        produced.topic.encode(),
        produced.first_seq,
        produced.last_seq,
        seqs,
        produced.head_seq,
        produced.count,
        b"true" if produced.created else b"false",
        b"true" if produced.deduped else b"false",
        performance(call.request, fsync_ms),
    )
    return Response(201 if produced.created else 200, body)


def diff(context: Context, call: Call) -> Later[Difference]:
    """Read records above a seq; with ``wait_ms``, wait for one to come."""
    body = _diff.read(call.request)
    read = commands.Diff(
        topic=call.names["topic"], from_seq=body.from_seq, limit=body.limit, node=body.node, wait_ms=body.wait_ms
    )
    tags, meta = body.include_tags, body.include_meta
    return Later(
        context.broker.run(read), lambda call, found, _: _difference(call.request, found, tags=tags, meta=meta), True
    )


def _difference(request: Request, found: Difference, *, tags: bool, meta: bool) -> Response:
    return Response(
        200,
        b'{"topic":"%b","records":[%b],"next_from_seq":%d,"head_seq":%d,"earliest_seq":%d,"caught_up":%b,'
        b'"tombstone":%b,"lag":%d,%b}'
        % (
            found.topic.encode(),
            b",".join([record(stored, tags=tags, meta=meta) for stored in found.records]),
            found.next_from_seq,
            found.head_seq,
            found.earliest_seq,
            b"true" if found.caught_up else b"false",
            b"null" if found.tombstone is None else gap_text(found.tombstone),
            found.lag,
            performance(request),
        ),
    )


_delete = command(commands.DeleteRecords, as_fields, optional=True)
_TOPIC = "/v0/topics/:topic"
ROUTES = [
    Route("POST", _TOPIC, append, frozenset({"write"}), AppendBody, "Append records", bulk=True),
    Route("POST", f"{_TOPIC}/diff", diff, frozenset({"read"}), DiffBody, "Read records"),
    Route("POST", f"{_TOPIC}/delete", _delete, frozenset({"delete"}), commands.DeleteRecords, "Delete records"),
]
