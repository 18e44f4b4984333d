"""Routes of topics: put, patch, get, list, delete."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.contract import replies
from tenure.contract.commands import DeleteTopic, PatchTopic, PutTopic
from tenure.contract.config_body import ConfigBody, PatchBody, config_fields
from tenure.contract.replies import DeletedTopic, Distribution, QueueMeters, TopicInfo
from tenure.core.paging import cursor_of
from tenure.http.api.app import Call, Route
from tenure.http.api.auth import check_name
from tenure.http.api.body import Reader
from tenure.http.api.command import built, reaching, sharing
from tenure.http.api.context import Context
from tenure.http.api.prefixes import shown_config, visible_names
from tenure.http.api.query import Query
from tenure.http.api.render import reply
from tenure.http.wire.message import Response

__all__ = ["ROUTES"]

_PAGE_SIZE = 100
_LOOKED_AT_ONCE = 1_000
_LOOKED_MAX = 10_000
"""How many names one page of a search by ``contains`` looks at: it may be short, or empty, and go on."""
_config = Reader(ConfigBody, optional=True)
_patch = Reader(PatchBody)


def put_topic(context: Context, call: Call) -> PutTopic:
    """Build the command that creates a topic or replaces its config."""
    config = _config.read(call.request)
    if config.dead_letter is not None:
        check_name(call, config.dead_letter)
    return PutTopic(topic=call.names["topic"], config=config_fields(config))


def _put(call: Call, answered: tuple[TopicInfo, bool], fsync_ms: float) -> Response:
    return _configured(call, *answered, fsync_ms=fsync_ms)


def patch_topic(_: Context, call: Call) -> PatchTopic:
    """Build the command that changes the named fields of a topic's config."""
    config = _patch.read(call.request)
    if isinstance(config.dead_letter, str):
        check_name(call, config.dead_letter)
    return PatchTopic(topic=call.names["topic"], config=config_fields(config))


def _patched(call: Call, info: TopicInfo, fsync_ms: float) -> Response:
    return _configured(call, info, False, fsync_ms=fsync_ms)


def _configured(call: Call, info: TopicInfo, created: bool, *, fsync_ms: float) -> Response:
    put = replies.PutTopic(info.topic, info.type, created, shown_config(call, info.config))
    return reply(call.request, put, status=201 if created else 200, fsync_ms=fsync_ms)


def get_topic(context: Context, call: Call) -> Response:
    """Return a topic's state and config."""
    touch = Query(call.request).flag("touch", True)
    return reply(call.request, topic_fields(call, context.broker.topic(call.names["topic"], touch=touch)))


def list_topics(context: Context, call: Call) -> Response:
    """List topics by name, those that the caller may see."""
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
    if more:  # it continues after a name that the caller may see, so it reveals no other
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


def delete_topic(_: Context, call: Call) -> DeleteTopic:
    """Build the command that deletes a topic with its records and the routers at either end; the broker refuses it
    where the key does not reach them all.
    """
    if_empty = Query(call.request).flag("if_empty", False)
    return DeleteTopic(topic=call.names["topic"], if_empty=if_empty)


def _deleted(call: Call, answered: tuple[bool, list[str]], fsync_ms: float) -> Response:
    deleted, routers = answered
    return reply(call.request, DeletedTopic(call.names["topic"], deleted, routers), fsync_ms=fsync_ms)


def topic_fields(call: Call, info: TopicInfo) -> dict[str, Any]:
    """Return the fields of a topic on the wire: ``queue`` only for a queue, no name beyond the caller's key."""
    fields = msgspec.structs.asdict(info)
    fields["config"] = shown_config(call, info.config)
    if info.queue is None:
        del fields["queue"]
    return fields


_READ, _ADMIN, _DELETE = frozenset({"read"}), frozenset({"admin"}), frozenset({"delete"})
_TOPIC = "/v0/topics/:topic"
ROUTES = [
    Route("GET", "/v0/topics", list_topics, _READ, summary="List topics"),
    Route(
        "PUT",
        _TOPIC,
        built(put_topic, _put, bounds=sharing),
        _ADMIN,
        ConfigBody,
        "Create a topic or replace its config",
    ),
    Route("PATCH", _TOPIC, built(patch_topic, _patched), _ADMIN, PatchBody, "Change some fields of a topic's config"),
    Route("GET", _TOPIC, get_topic, _READ, summary="A topic's state and config"),
    Route("DELETE", _TOPIC, built(delete_topic, _deleted, bounds=reaching), _DELETE, summary="Delete a topic"),
]
