"""Topics as such: put, patch, look, list, delete."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.contract.config_body import ConfigBody, PatchBody, config_fields
from tenure.contract.replies import DeletedTopic, Distribution, PutTopic, QueueMeters, TopicInfo
from tenure.core.paging import cursor_of
from tenure.http.api.app import Call, Route
from tenure.http.api.auth import check_name, visible
from tenure.http.api.body import Reader
from tenure.http.api.context import Context
from tenure.http.api.prefixes import shown_config, visible_names
from tenure.http.api.query import Query
from tenure.http.api.render import Stopwatch, reply
from tenure.http.api.shares import share_of
from tenure.http.wire.message import Later, Response

__all__ = ["ROUTES"]

_PAGE_SIZE = 100
_LOOKED_AT_ONCE = 1_000
_LOOKED_MAX = 10_000
"""How many names one page of a search by ``contains`` looks at: it may be short, or empty, and go on."""
_config = Reader(ConfigBody, optional=True)
_patch = Reader(PatchBody)


def put_topic(context: Context, call: Call) -> Later[tuple[TopicInfo, bool]]:
    """Create a topic or replace its config."""
    request = call.request
    config = _config.read(request)
    if config.dead_letter is not None:
        check_name(call, config.dead_letter)
    answer = context.broker.put_topic(call.names["topic"], config_fields(config), share=share_of(context, call))
    watch = Stopwatch(answer)

    def render(answered: tuple[TopicInfo, bool]) -> Response:
        info, created = answered
        put = PutTopic(info.topic, info.type, created, shown_config(call, info.config))
        return reply(request, put, status=201 if created else 200, fsync_ms=watch.fsync_ms)

    return Later(answer, render)


def patch_topic(context: Context, call: Call) -> Later[TopicInfo]:
    """Change the named fields of a topic's config."""
    request = call.request
    config = _patch.read(request)
    if isinstance(config.dead_letter, str):
        check_name(call, config.dead_letter)
    answer = context.broker.patch_topic(call.names["topic"], config_fields(config))
    watch = Stopwatch(answer)

    def render(info: TopicInfo) -> Response:
        put = PutTopic(info.topic, info.type, False, shown_config(call, info.config))
        return reply(request, put, fsync_ms=watch.fsync_ms)

    return Later(answer, render)


def get_topic(context: Context, call: Call) -> Response:
    """A topic's state and config."""
    touch = Query(call.request).flag("touch", True)
    return reply(call.request, topic_fields(call, context.broker.topic(call.names["topic"], touch=touch)))


def list_topics(context: Context, call: Call) -> Response:
    """Topics by name, those that the caller may see."""
    query = Query(call.request)
    size = min(query.whole("page_size", _PAGE_SIZE), context.settings.engine.page_max) or 1
    prefix, contains, cursor = query.text("prefix") or "", query.text("contains") or "", query.text("cursor")
    broker = context.broker
    names: list[str] = []
    last, more = "", False
    found = visible_names(broker, call, prefix=prefix, cursor=cursor, page=_LOOKED_AT_ONCE if contains else size + 1)
    for looked, name in enumerate(found):
        if more := len(names) == size or looked == _LOOKED_MAX:
            break
        last = name
        if contains in name:
            names.append(name)
    fields: dict[str, Any] = {"topics": [topic_fields(call, broker.topic(name, touch=False)) for name in names]}
    if query.flag("meters", False):
        for about in fields["topics"]:
            if "queue" in about:
                about["meters"] = _brief(broker.meters(about["topic"]))
    if more:  # given out behind a name that the caller may see: it says nothing about others
        fields["next_cursor"] = cursor_of(last)
    return reply(call.request, fields)


def _brief(meters: QueueMeters) -> dict[str, Any]:
    """Return the numbers of a queue without the buckets: what a list has room for."""
    fields = msgspec.structs.asdict(meters)
    del fields["topic"], fields["deliveries"]
    for name in ("in_queue_ms", "processing_ms"):
        times: Distribution = fields.pop(name)
        if times.count:
            fields[f"{name}_p99"] = times.p99
    return fields


def delete_topic(context: Context, call: Call) -> Later[tuple[bool, list[str]]]:
    """Delete a topic with its records and the routers at either end; refused where the key does not reach them all."""
    request, name = call.request, call.names["topic"]
    if_empty = Query(request).flag("if_empty", False)
    answer = context.broker.delete_topic(name, if_empty=if_empty, reaches=lambda one: visible(call, one))
    watch = Stopwatch(answer)

    def render(answered: tuple[bool, list[str]]) -> Response:
        deleted, routers = answered
        return reply(request, DeletedTopic(name, deleted, routers), fsync_ms=watch.fsync_ms)

    return Later(answer, render)


def topic_fields(call: Call, info: TopicInfo) -> dict[str, Any]:
    """A topic as the wire shows it: ``queue`` only where it is one, no name that the caller's key does not reach."""
    fields = msgspec.structs.asdict(info)
    fields["config"] = shown_config(call, info.config)
    if info.queue is None:
        del fields["queue"]
    return fields


_TOPIC = "/v0/topics/:topic"
ROUTES = [
    Route("GET", "/v0/topics", list_topics, frozenset({"read"}), summary="List topics"),
    Route("PUT", _TOPIC, put_topic, frozenset({"admin"}), ConfigBody, "Create a topic or replace its config"),
    Route("PATCH", _TOPIC, patch_topic, frozenset({"admin"}), PatchBody, "Change some fields of a topic's config"),
    Route("GET", _TOPIC, get_topic, frozenset({"read"}), summary="A topic's state and config"),
    Route("DELETE", _TOPIC, delete_topic, frozenset({"delete"}), summary="Delete a topic"),
]
