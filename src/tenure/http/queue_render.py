"""Replies about jobs and leases as bytes.

A claim of a thousand jobs is the longest answer there is, so it is put together with one format per job; ``data`` and
``meta`` go in as they lie in the log. Names of topics and lease ids need no escaping: what may stand in them is plain.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, TypeVar

import msgspec

from tenure.broker.answer import Answer, Level
from tenure.broker.replies import Claim, Extension, Redrive, Settled
from tenure.core.records import Stored
from tenure.http.message import Later, Request, Response
from tenure.http.sse import field

__all__ = ["claimed", "extended", "job_frames", "listed", "one_job", "redriven", "settled", "when_durable"]

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


def when_durable(request: Request, answer: Answer[T], render: Callable[[Request, T, float], Response]) -> Later[T]:
    """Answer once the write is durable; ``render`` also gets how long a sync kept the answer waiting, in ms."""
    if answer.level != Level.SYNCED:
        return Later(answer, lambda reply: render(request, reply, 0.0))
    started = perf_counter()
    return Later(answer, lambda reply: render(request, reply, (perf_counter() - started) * 1000))


def claimed(request: Request, claim: Claim) -> Response:
    """The jobs of a claim."""
    return Response(
        200,
        b'{"topic":"%b","claimed":[%b],"count":%d,"ready":%d,"lease_id":%b,'
        b'"performance":{"server_total_ms":%.3f,"throttle_wait_ms":0.0}}'
        % (
            claim.topic.encode(),
            b",".join(_jobs(claim, b"{")),
            len(claim.jobs),
            claim.ready,
            b'"%b"' % claim.lease_id.encode() if claim.lease_id is not None else b"null",
            request.elapsed_ms,
        ),
    )


def job_frames(claim: Claim) -> list[bytes]:
    """The jobs of a claim as events of a work stream."""
    bodies = _jobs(claim, b'{"topic":"%b",' % claim.topic.encode())
    return [
        b"id: %d\nevent: job\ndata: %b\n\n" % (job.seq, field(body))
        for job, body in zip(claim.jobs, bodies, strict=True)
    ]


def _jobs(claim: Claim, opening: bytes) -> list[bytes]:
    """Each job as an object that starts with ``opening``."""
    lease = b'"lease_id":null,"deadline":null'
    if claim.lease_id is not None:
        lease = b'"lease_id":"%b","deadline":%d' % (claim.lease_id.encode(), claim.deadline)
    bare = b'%b"$seq":%%d,%b,"$ts":%%d,"deliveries":1,"data":%%b}' % (opening, lease)
    if claim.redelivered:
        return [_job(claim, job, opening, lease) for job in claim.jobs]
    return [
        bare % (job.seq, job.ts, job.data) if job.tag is None and job.meta is None else _job(claim, job, opening, lease)
        for job in claim.jobs
    ]


def _job(claim: Claim, job: Stored, opening: bytes, lease: bytes) -> bytes:
    return b'%b"$seq":%d,%b,"$ts":%d%b,"deliveries":%d,"data":%b%b}' % (
        opening,
        job.seq,
        lease,
        job.ts,
        b"" if job.tag is None else b',"$tag":' + _encode(job.tag),
        claim.redelivered.get(job.seq, 1),
        job.data,
        b"" if job.meta is None else b',"meta":' + job.meta,
    )


def settled(verb: bytes) -> Callable[[Request, Settled, float], Response]:
    """How an ack or a nack is answered; ``verb`` names the count."""

    def render(request: Request, reply: Settled, fsync_ms: float) -> Response:
        return Response(
            200,
            b'{"topic":"%b","%b":%d,"skipped":%b,"ready":%d,"in_flight":%d,%b'
            % (
                reply.topic.encode(),
                verb,
                reply.count,
                _encode(reply.skipped) if reply.skipped else b"[]",
                reply.ready,
                reply.in_flight,
                _written(request, fsync_ms),
            ),
        )

    return render


def extended(request: Request, reply: Extension, fsync_ms: float) -> Response:
    """The new deadlines, by seq as a string."""
    return Response(
        200,
        b'{"topic":"%b","extended":%d,"skipped":%b,"deadlines":{%b},%b'
        % (
            reply.topic.encode(),
            len(reply.deadlines),
            _encode(reply.skipped),
            b",".join([b'"%d":%d' % pair for pair in reply.deadlines.items()]),
            _written(request, fsync_ms),
        ),
    )


def redriven(request: Request, reply: Redrive, fsync_ms: float) -> Response:
    """How many dead letters went back to work, and where to."""
    said = {"topic": reply.topic, "to": reply.to, "redriven": reply.redriven, "seqs": reply.seqs}
    return Response(200, _encode(said)[:-1] + b"," + _written(request, fsync_ms))


def listed(request: Request, said: dict[str, Any], next_cursor: str | None) -> Response:
    """A page; ``next_cursor`` is there only when more pages are."""
    if next_cursor is not None:
        said["next_cursor"] = next_cursor
    said["performance"] = {"server_total_ms": round(request.elapsed_ms, 3)}
    return Response(200, _encode(said))


def one_job(request: Request, topic: str, record: Stored, about: dict[str, Any]) -> Response:
    """A job: its record as it was written, where it stands, and what became of its deliveries so far."""
    head: dict[str, Any] = {"topic": topic, "$seq": record.seq, "$ts": record.ts}
    if record.tag is not None:
        head["$tag"] = record.tag
    if record.node is not None:
        head["$node"] = record.node
    head |= {name: value for name, value in about.items() if name != "seq"}
    return Response(
        200,
        b'%b,"data":%b%b,"performance":{"server_total_ms":%.3f}}'
        % (
            _encode(head)[:-1],
            record.data,
            b"" if record.meta is None else b',"meta":' + record.meta,
            request.elapsed_ms,
        ),
    )


def _written(request: Request, fsync_ms: float) -> bytes:
    """The end of an answer to a write."""
    return b'"performance":{"server_total_ms":%.3f,"fsync_ms":%.3f}}' % (request.elapsed_ms, fsync_ms)
