"""Replies about jobs and leases as bytes.

A claim of a thousand jobs is the longest answer there is, so it is put together with one format per job; ``data`` and
``meta`` go in as they lie in the log. Names of topics and lease ids need no escaping: what may stand in them is plain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tenure.broker.answer import Answer
from tenure.contract.records import Stored
from tenure.contract.replies import Extended, Grant, Redriven, Settled
from tenure.http.api.render import Stopwatch, encode, performance, reply
from tenure.http.streams.sse import field
from tenure.http.wire.message import Later, Request, Response

__all__ = ["claimed", "extended", "job_frames", "redriven", "settled", "when_durable"]

T = TypeVar("T")


def when_durable(request: Request, answer: Answer[T], render: Callable[[Request, T, float], Response]) -> Later[T]:
    """Answer once the write is durable; ``render`` also gets how long a sync kept the answer waiting, in ms."""
    watch = Stopwatch(answer)
    return Later(answer, lambda reply: render(request, reply, watch.fsync_ms))


def claimed(request: Request, claim: Grant) -> Response:
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


def job_frames(claim: Grant) -> list[bytes]:
    """The jobs of a claim as events of a work stream."""
    bodies = _jobs(claim, b'{"topic":"%b",' % claim.topic.encode())
    return [
        b"id: %d\nevent: job\ndata: %b\n\n" % (job.seq, field(body))
        for job, body in zip(claim.jobs, bodies, strict=True)
    ]


def _jobs(claim: Grant, opening: bytes) -> list[bytes]:
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


def _job(claim: Grant, job: Stored, opening: bytes, lease: bytes) -> bytes:
    return b'%b"$seq":%d,%b,"$ts":%d%b,"deliveries":%d,"data":%b%b}' % (
        opening,
        job.seq,
        lease,
        job.ts,
        b"" if job.tag is None else b',"$tag":' + encode(job.tag),
        claim.redelivered.get(job.seq, 1),
        job.data,
        b"" if job.meta is None else b',"meta":' + job.meta,
    )


def settled(verb: bytes) -> Callable[[Request, Settled, float], Response]:
    """How an ack or a nack is answered; ``verb`` names the count."""

    def render(request: Request, answered: Settled, fsync_ms: float) -> Response:
        return Response(
            200,
            b'{"topic":"%b","%b":%d,"skipped":%b,"ready":%d,"in_flight":%d,%b}'
            % (
                answered.topic.encode(),
                verb,
                answered.count,
                encode(answered.skipped) if answered.skipped else b"[]",
                answered.ready,
                answered.in_flight,
                performance(request, fsync_ms),
            ),
        )

    return render


def extended(request: Request, answered: Extended, fsync_ms: float) -> Response:
    """The new deadlines, by seq as a string."""
    return Response(
        200,
        b'{"topic":"%b","extended":%d,"skipped":%b,"deadlines":{%b},%b}'
        % (
            answered.topic.encode(),
            len(answered.deadlines),
            encode(answered.skipped),
            b",".join([b'"%d":%d' % pair for pair in answered.deadlines.items()]),
            performance(request, fsync_ms),
        ),
    )


def redriven(request: Request, answered: Redriven, fsync_ms: float) -> Response:
    """How many dead letters went back to work, and where to."""
    return reply(request, answered, fsync_ms=fsync_ms)
