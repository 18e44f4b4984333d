"""Topics: put, patch, get, list and delete them."""

from __future__ import annotations

from typing import Unpack

from msgspec.json import Decoder

from tenure.client.calls.requests import call, get
from tenure.client.config import ConfigFields, PatchFields, check_config, check_patch
from tenure.client.plan.encode import encode_body, path_of, query_of
from tenure.client.plan.session import Session
from tenure.client.plan.steps import Plan
from tenure.client.transport.wire import Request
from tenure.contract.commands import DeleteTopic, PatchTopic
from tenure.contract.commands import PutTopic as PutTopicCommand
from tenure.contract.replies import DeletedTopic, PutTopic, TopicInfo, TopicPage

__all__ = ["delete_topic", "patch_topic", "put_topic", "topic", "topics"]

_put = Decoder(PutTopic)
_topic = Decoder(TopicInfo)
_page = Decoder(TopicPage)
_deleted = Decoder(DeletedTopic)


def put_topic(session: Session, /, name: str, **config: Unpack[ConfigFields]) -> Plan[PutTopic]:
    """Create a topic or replace its config: what is left out returns to its default, but ``type`` stays.

    Raises Invalid before anything is sent for a bad value, Conflict where the type would change.
    """
    path = path_of(name)
    check_config(config, topic=name)
    given = {field: value for field, value in config.items() if value is not None}  # for a put None is the default
    put, _ = yield from call(session, Request("PUT", path, encode_body(given)), _put, PutTopicCommand.repeat)
    return put


def patch_topic(session: Session, /, name: str, **config: Unpack[PatchFields]) -> Plan[PutTopic]:
    """Change the named fields of a topic's config and leave the others; None returns a field to its default.

    Raises Invalid before anything is sent for a bad value, NotFound where there is no such topic.
    """
    path = path_of(name)
    check_patch(config, topic=name)
    put, _ = yield from call(session, Request("PATCH", path, encode_body(config)), _put, PatchTopic.repeat)
    return put


def topic(session: Session, name: str, *, touch: bool = False) -> Plan[TopicInfo]:
    """Return a topic's state and config. ``touch`` counts as a read for its automatic priority."""
    return (yield from get(session, query_of(path_of(name), touch=touch), _topic))


def topics(session: Session, *, prefix: str = "", page_size: int = 1000, cursor: str | None = None) -> Plan[TopicPage]:
    """Return topics by name, those that the key reaches; continue from ``next_cursor``."""
    return (yield from get(session, query_of("/v0/topics", prefix=prefix, page_size=page_size, cursor=cursor), _page))


def delete_topic(session: Session, name: str, *, if_empty: bool = False) -> Plan[DeletedTopic]:
    """Delete a topic with its records and the routers at either end. Never repeated after a lost answer."""
    request = Request("DELETE", query_of(path_of(name), if_empty=if_empty))
    deleted, _ = yield from call(session, request, _deleted, DeleteTopic.repeat)
    return deleted
