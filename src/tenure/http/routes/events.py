"""GET …/events: lifecycle events of a topic's jobs as they happen."""

from __future__ import annotations

from tenure.contract.names import check_topic_name
from tenure.http.api.app import Call, Route
from tenure.http.api.auth import visible
from tenure.http.api.context import Context
from tenure.http.streams import sse
from tenure.http.streams.outlet import Outlet
from tenure.http.streams.shared import streams_of
from tenure.http.wire.message import Response, Send

__all__ = ["ROUTES"]


def events(context: Context, call: Call) -> Response:
    """Stream lifecycle rows from now on, or after the one that Last-Event-ID names while it is kept."""
    request, topic = call.request, check_topic_name(call.names["topic"])
    sse.check_accept(request)
    context.broker.topic(topic, touch=False)
    last_id = request.headers.get("last-event-id")
    streams = streams_of(context)
    after = streams.events.backlog.number_of(last_id) if last_id else None

    def heartbeat() -> bytes:
        context.broker.topic(topic, touch=False)  # NotFound ends the stream where the topic was deleted
        return sse.HEARTBEAT

    async def stream(send: Send) -> None:
        outlet = Outlet(send, heartbeat_ms=streams.heartbeat_ms, heartbeat=heartbeat)
        place = streams.events.open(topic, outlet, after=after, reaches=lambda name: visible(call, name))
        try:
            await outlet.send(sse.RETRY + sse.HEARTBEAT)
            while True:
                frames = place.take()
                if frames:
                    await sse.send_in_pieces(outlet.send, frames)
                else:
                    await outlet.wait()
        finally:
            place.close()

    return sse.stream_response(request, stream)


ROUTES = [
    Route(
        "GET",
        "/v0/topics/:topic/events",
        events,
        frozenset({"read"}),
        summary="The life of jobs as events",
        sse=True,
    ),
]
