"""Topics as such: put, look, list, delete."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.broker.replies import TopicInfo
from tenure.http.app import Call, Route
from tenure.http.auth import check_name, visible
from tenure.http.body import Reader
from tenure.http.context import Context
from tenure.http.message import Later, Response
from tenure.http.query import Query
from tenure.http.render import Stopwatch, reply
from tenure.http.schemas import ConfigBody, config_fields

__all__ = ["ROUTES"]

_PAGE_SIZE = 100
_LOOKED_MAX = 10_000
"""How many names one page of a search by ``contains`` looks at: it may be short, or empty, and go on."""
_config = Reader(ConfigBody, optional=True)


def put_topic(context: Context, call: Call) -> Later[tuple[TopicInfo, bool]]:
    """Create a topic or replace its config."""
    request = call.request
    config = _config.read(request)
    if config.dead_letter is not None:
        check_name(call, config.dead_letter)
    answer = context.broker.put_topic(call.names["topic"], config_fields(config))
    watch = Stopwatch(answer)

    def render(answered: tuple[TopicInfo, bool]) -> Response:
        info, created = answered
        fields = {"topic": info.topic, "type": info.type, "created": created, "config": info.config}
        return reply(request, fields, status=201 if created else 200, fsync_ms=watch.fsync_ms)

    return Later(answer, render)


def get_topic(context: Context, call: Call) -> Response:
    """A topic's state and config."""
    touch = Query(call.request).flag("touch", True)
    return reply(call.request, topic_fields(context.broker.topic(call.names["topic"], touch=touch)))


def list_topics(context: Context, call: Call) -> Response:
    """Topics by name, those that the caller may see."""
    query = Query(call.request)
    size = min(query.whole("page_size", _PAGE_SIZE), context.settings.engine.page_max) or 1
    prefix, contains, cursor = query.text("prefix") or "", query.text("contains") or "", query.text("cursor")
    broker = context.broker
    names: list[str] = []
    looked = 0
    while True:
        page = broker.topics(prefix=prefix, limit=size - len(names), cursor=cursor)
        seen = [name for name in page.items if visible(call, name)]
        names += (name for name in seen if contains in name)
        looked += len(seen)
        cursor = page.next_cursor
        # A cursor is given out only behind a name that the caller may see: it tells nothing about others.
        tired = looked >= _LOOKED_MAX and seen[-1:] == page.items[-1:]
        if cursor is None or len(names) == size or tired:
            break
    fields: dict[str, Any] = {"topics": [topic_fields(broker.topic(name, touch=False)) for name in names]}
    if query.flag("meters", False):
        for about in fields["topics"]:
            if "queue" in about:
                about["meters"] = _brief(broker.meters(about["topic"]))
    if cursor is not None:
        fields["next_cursor"] = cursor
    return reply(call.request, fields)


def _brief(meters: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a queue without the buckets: what a list has room for."""
    quantiles = {
        f"{name}_p99": meters[name]["p99"] for name in ("in_queue_ms", "processing_ms") if meters[name]["count"]
    }
    return {name: value for name, value in meters.items() if not isinstance(value, dict) or name == "worst"} | quantiles


def delete_topic(context: Context, call: Call) -> Later[tuple[bool, list[str]]]:
    """Delete a topic with its records and the routers at either end."""
    request, name = call.request, call.names["topic"]
    answer = context.broker.delete_topic(name, if_empty=Query(request).flag("if_empty", False))
    watch = Stopwatch(answer)

    def render(answered: tuple[bool, list[str]]) -> Response:
        deleted, routers = answered
        fields = {"topic": name, "deleted": deleted, "routers_removed": [r for r in routers if visible(call, r)]}
        return reply(request, fields, fsync_ms=watch.fsync_ms)

    return Later(answer, render)


def topic_fields(info: TopicInfo) -> dict[str, Any]:
    """A topic as the wire shows it: ``queue`` only where it is one."""
    fields = msgspec.structs.asdict(info)
    if info.queue is None:
        del fields["queue"]
    return fields


_TOPIC = "/v0/topics/:topic"
ROUTES = [
    Route("GET", "/v0/topics", list_topics, frozenset({"read"}), summary="List topics"),
    Route("PUT", _TOPIC, put_topic, frozenset({"admin"}), ConfigBody, "Create a topic or replace its config"),
    Route("GET", _TOPIC, get_topic, frozenset({"read"}), summary="A topic's state and config"),
    Route("DELETE", _TOPIC, delete_topic, frozenset({"delete"}), summary="Delete a topic"),
]
