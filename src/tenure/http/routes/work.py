"""GET …/work: jobs leased and pushed to one connection, given back when it is gone.

DELETE …/work ends the streams of a node and leaves their jobs with it, so that a worker can stop taking and still
finish what it began.
"""

from __future__ import annotations

from tenure.broker.broker import Broker
from tenure.broker.serving.streams import WorkStream
from tenure.contract.commands import Claim
from tenure.contract.names import check_node, check_topic_name
from tenure.core.decide.claim import check_isolation
from tenure.errors import Conflict, Invalid, NotFound
from tenure.http.api.app import Call, Route
from tenure.http.api.context import Context
from tenure.http.api.query import Query
from tenure.http.api.queue_render import job_frames, suspects_frame
from tenure.http.api.render import reply
from tenure.http.streams import sse
from tenure.http.streams.outlet import Outlet
from tenure.http.streams.shared import streams_of
from tenure.http.wire.message import Response, Send

__all__ = ["ROUTES"]


def work(context: Context, call: Call) -> Response:
    """Open a work stream. Raises every refusal before the stream starts; nothing is leased before the peer reads."""
    request, topic, query = call.request, check_topic_name(call.names["topic"]), Query(call.request)
    sse.check_accept(request)
    node, max_count, lease_ms = query.text("node"), query.whole("max", 1), query.whole_or_none("lease_ms")
    if node is None:
        raise Invalid("node is missing: say who works", field="node")
    check_node(node)
    isolate, suspects, group = query.flag("isolate", False), query.flag("suspects", False), query.text("group")
    check_isolation(Claim(node=node, isolate=isolate, group=group, suspects=suspects))
    _check_queue(context.broker, topic)
    heartbeat_ms = streams_of(context).heartbeat_ms

    async def stream(send: Send) -> None:
        await send(sse.RETRY + sse.HEARTBEAT)
        jobs = context.broker.work(
            topic,
            node=node,
            max_count=max_count,
            lease_ms=lease_ms,
            isolate=isolate,
            group=group,
            suspects=suspects,
        )
        try:
            await _push(send, jobs, heartbeat_ms=heartbeat_ms)
        except NotFound:
            _check_queue(context.broker, topic)  # a log of that name by now: then Conflict is the error to report
            raise
        finally:
            jobs.close()

    return sse.stream_response(request, stream)


def detach(context: Context, call: Call) -> Response:
    """End a node's work streams; what they delivered stays leased to it."""
    topic, node = check_topic_name(call.names["topic"]), Query(call.request).text("node")
    if node is None:
        raise Invalid("node is missing: say whose streams end", field="node")
    _check_queue(context.broker, topic)
    return reply(call.request, {"topic": topic, "streams": context.broker.detach(topic, node=node)})


def _check_queue(broker: Broker, topic: str) -> None:
    """Raise NotFound or Conflict unless there is a queue of that name."""
    if broker.topic(topic, touch=False).queue is None:
        raise Conflict(
            f"{topic!r} is a log, not a queue: work needs a topic of type queue", code="not_a_queue", topic=topic
        )


async def _push(send: Send, jobs: WorkStream, *, heartbeat_ms: int) -> None:
    """Send jobs as they are claimed. At its depth the stream claims no more until the worker settles some."""
    outlet = Outlet(send, heartbeat_ms=heartbeat_ms, heartbeat=lambda: sse.HEARTBEAT)
    jobs.on_arrival = outlet.wake
    while True:
        answer = jobs.take()
        if answer is not None:
            await sse.send_in_pieces(outlet.send, job_frames(await answer))
        elif jobs.is_closed:
            return
        elif jobs.suspects:
            count, jobs.suspects = jobs.suspects, 0
            await outlet.send(suspects_frame(jobs.topic.name, count))
        else:
            await outlet.wait()


ROUTES = [
    Route(
        "GET",
        "/v0/topics/:topic/work",
        work,
        frozenset({"read", "write"}),
        summary="Jobs pushed as events, leased to this connection",
        sse=True,
    ),
    Route(
        "DELETE",
        "/v0/topics/:topic/work",
        detach,
        frozenset({"read", "write"}),
        summary="End a node's work streams; their jobs stay leased to it",
    ),
]
