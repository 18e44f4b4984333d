"""Replies about jobs and leases as bytes.

A claim of a thousand jobs is the longest answer there is, so it is built with one format per job; ``data`` and ``meta``
are copied as they are in the log. Names of topics and lease ids need no escaping: only plain characters are allowed.
"""

from __future__ import annotations

from collections.abc import Callable

from tenure.contract.records import Stored
from tenure.contract.replies import BegunJob, Extended, Grant, Settled
from tenure.http.api.app import Call
from tenure.http.api.render import encode, performance
from tenure.http.streams.sse import field
from tenure.http.wire.message import Response

__all__ = [
    "job_frames",
    "render_begun",
    "render_claim",
    "render_extended",
    "render_settled",
    "suspects_frame",
]


def render_claim(call: Call, claim: Grant, _: float = 0.0) -> Response:
    """Render the jobs of a claim."""
    return Response(
        200,
        b'{"topic":"%b","claimed":[%b],"count":%d,"ready":%d,"lease_id":%b,%b'
        b'"performance":{"server_total_ms":%.3f,"throttle_wait_ms":0.0}}'
        % (
            claim.topic.encode(),
            b",".join(_jobs(claim, b"{")),
            len(claim.jobs),
            claim.ready,
            b'"%b"' % claim.lease_id.encode() if claim.lease_id is not None else b"null",
            b'"suspects":%d,' % claim.suspects if claim.suspects else b"",
            call.request.elapsed_ms,
        ),
    )


def job_frames(claim: Grant) -> list[bytes]:
    """Return the jobs of a claim as events of a work stream."""
    bodies = _jobs(claim, b'{"topic":"%b",' % claim.topic.encode())
    return [
        b"id: %d\nevent: job\ndata: %b\n\n" % (job.seq, field(body))
        for job, body in zip(claim.jobs, bodies, strict=True)
    ]


def suspects_frame(topic: str, count: int) -> bytes:
    """Return the event of a work stream that says how many suspects wait."""
    return b'event: suspects\ndata: {"topic":"%b","suspects":%d}\n\n' % (topic.encode(), count)


def render_begun(call: Call, answered: BegunJob, fsync_ms: float) -> Response:
    """Render the answer to a begin."""
    return Response(
        200,
        b'{"topic":"%b","seq":%d,%b}' % (answered.topic.encode(), answered.seq, performance(call.request, fsync_ms)),
    )


def _jobs(claim: Grant, opening: bytes) -> list[bytes]:
    """Return each job as an object that starts with ``opening``."""
    lease = b'"lease_id":null,"deadline":null'
    if claim.lease_id is not None:
        lease = b'"lease_id":"%b","deadline":%d' % (claim.lease_id.encode(), claim.deadline)
    bare = b'%b"$seq":%%d,%b,"$ts":%%d,"deliveries":1,"data":%%b}' % (opening, lease)
    if claim.redelivered or claim.lost:
        return [_job(claim, job, opening, lease) for job in claim.jobs]
    return [
        bare % (job.seq, job.ts, job.data) if job.tag is None and job.meta is None else _job(claim, job, opening, lease)
        for job in claim.jobs
    ]


def _job(claim: Grant, job: Stored, opening: bytes, lease: bytes) -> bytes:
    return b'%b"$seq":%d,%b,"$ts":%d%b,"deliveries":%d%b%b,"data":%b%b}' % (
        opening,
        job.seq,
        lease,
        job.ts,
        b"" if job.tag is None else b',"$tag":' + encode(job.tag),
        claim.redelivered.get(job.seq, 1),
        b',"tries":%d' % claim.tries[job.seq] if job.seq in claim.tries else b"",
        b',"lost":%d' % claim.lost[job.seq] if job.seq in claim.lost else b"",
        job.data,
        b"" if job.meta is None else b',"meta":' + job.meta,
    )


def render_settled(verb: bytes) -> Callable[[Call, Settled, float], Response]:
    """Return a function that renders the answer to an ack or a nack; ``verb`` names the count."""

    def render(call: Call, answered: Settled, fsync_ms: float) -> Response:
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
                performance(call.request, fsync_ms),
            ),
        )

    return render


def render_extended(call: Call, answered: Extended, fsync_ms: float) -> Response:
    """Render the new deadlines, by seq as a string."""
    return Response(
        200,
        b'{"topic":"%b","extended":%d,"skipped":%b,"deadlines":{%b},%b}'
        % (
            answered.topic.encode(),
            len(answered.deadlines),
            encode(answered.skipped),
            b",".join([b'"%d":%d' % pair for pair in answered.deadlines.items()]),
            performance(call.request, fsync_ms),
        ),
    )
