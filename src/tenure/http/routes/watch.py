"""POST /v0/watch and GET /v0/watch/:wid: many topics over one stream."""

from __future__ import annotations

from tenure.contract.bodies import WatchBody
from tenure.contract.names import check_node, check_topic_name
from tenure.errors import Invalid, NotFound
from tenure.http.api.app import Call, Route
from tenure.http.api.auth import check_name
from tenure.http.api.body import U64_MAX, Reader
from tenure.http.api.command import sharing
from tenure.http.api.context import Context
from tenure.http.api.query import Query
from tenure.http.api.render import reply
from tenure.http.api.shares import share_used_up
from tenure.http.streams import sse
from tenure.http.streams.shared import streams_of
from tenure.http.streams.watch import Following, decode_cursors, following_of
from tenure.http.streams.watch_stream import Follower
from tenure.http.wire.message import Response, Send

__all__ = ["ROUTES"]

_LIMIT = 256
_BATCH_BYTES = 1 << 20
_BATCH_BYTES_MAX = 8 << 20
_HEARTBEAT_MS_MIN, _HEARTBEAT_MS_MAX = 1_000, 60_000

_read_watch = Reader(WatchBody).read


def create(context: Context, call: Call) -> Response:
    """Begin a session. Unknown topics are refused; ``?lenient=true`` leaves them out instead."""
    request, lenient = call.request, Query(call.request).flag("lenient", False)
    body, streams = _read_watch(request), streams_of(context)
    for name in body.topics:
        check_name(call, check_topic_name(name))
    following = _following(body, streams.heartbeat_ms)
    cursors: dict[str, int] = {}
    topics: dict[str, dict[str, int]] = {}
    for name, begin in body.topics.items():
        if begin.from_seq > U64_MAX:
            raise Invalid(f"topics.{name}.from_seq must be a whole number from 0 to {U64_MAX}")
        try:
            info = context.broker.topic(name, touch=False)
        except NotFound:
            if lenient:
                continue
            raise
        cursors[name] = info.head_seq if begin.tail else begin.from_seq
        topics[name] = {"from_seq": cursors[name], "head_seq": info.head_seq, "earliest_seq": info.earliest_seq}
    _check_share(context, call)
    session = streams.sessions.create(owner=call.key_id, following=following, cursors=cursors)
    return reply(
        request,
        {
            "wid": session.wid,
            "stream_url": f"/v0/watch/{session.wid}",
            "session_ttl_ms": streams.sessions.ttl_ms,
            "topics": topics,
        },
    )


def _check_share(context: Context, call: Call) -> None:
    """Raise Overloaded where the caller's key has as many sessions as its share allows."""
    settings = context.settings
    most = (
        settings.share_of(settings.watch_sessions_max)
        if sharing(call, context.shares, context.broker) is not None
        else 0
    )
    if 0 < most <= streams_of(context).sessions.owned(call.key_id):
        advice = "watch sessions: leave some unread until they are forgotten, or follow more topics in one"
        raise share_used_up(most, advice, percent=settings.key_share_percent, of="watch_sessions_max")


def _following(body: WatchBody, heartbeat_ms: int) -> Following:
    nodes = [body.node] if isinstance(body.node, str) else body.node
    if body.heartbeat_ms is not None:
        heartbeat_ms = min(max(body.heartbeat_ms, _HEARTBEAT_MS_MIN), _HEARTBEAT_MS_MAX)
    return following_of(
        nodes=frozenset(map(check_node, nodes)) if nodes else None,
        limit=body.limit or _LIMIT,
        batch_bytes_max=min(body.max_batch_bytes or _BATCH_BYTES, _BATCH_BYTES_MAX),
        heartbeat_ms=heartbeat_ms,
        include_meta=body.include_meta,
        include_tags=body.include_tags,
        include_data=body.include_data,
        strong=body.consistency == "strong",
    )


def follow(context: Context, call: Call) -> Response:
    """Open the stream of a session, from where it was left or from where Last-Event-ID goes back to."""
    request, streams = call.request, streams_of(context)
    sessions = streams.sessions
    sse.check_accept(request)
    session = sessions.find(call.names["wid"], owner=call.key_id)
    for name in session.cursors:
        check_name(call, name)
    last_id = request.headers.get("last-event-id")
    seen = decode_cursors(last_id) if last_id else {}

    async def stream(send: Send) -> None:
        if session.reader is not None:
            session.reader.replace()
        session.rewind(seen)
        session.reader = follower = Follower(context.broker, session, send, feeds=streams.feeds, caller=request.caller)
        sessions.attach(session)
        try:
            await follower.run()
        finally:
            sessions.detach(session)
            if session.reader is follower:
                session.reader = None

    return sse.stream_response(request, stream)


_READ = frozenset({"read"})

ROUTES = [
    Route("POST", "/v0/watch", create, _READ, WatchBody, "Begin to follow topics"),
    Route("GET", "/v0/watch/:wid", follow, _READ, summary="Records of the followed topics as events", sse=True),
]
