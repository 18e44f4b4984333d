"""Topics as such: put, patch, look, list, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import msgspec
from msgspec.json import Decoder

from tenure.client.calls.calling import ask, posting, tell
from tenure.client.config import ConfigFields, PatchFields, check_config, check_patch
from tenure.client.plan.encode import path_of, query_of
from tenure.client.plan.retry import Repeat
from tenure.client.plan.session import Core
from tenure.client.plan.steps import Plan
from tenure.client.transport.wire import Request
from tenure.contract.replies import DeletedTopic, PutTopic, TopicInfo, TopicPage

__all__ = ["delete_topic", "patch_topic", "put_topic", "topic", "topics"]

_put = Decoder(PutTopic)
_topic = Decoder(TopicInfo)
_page = Decoder(TopicPage)
_deleted = Decoder(DeletedTopic)


def put_topic(core: Core, /, name: str, **config: Unpack[ConfigFields]) -> Plan[PutTopic]:
    """Create a topic or replace its config: what is left out returns to its default, but ``type`` stays.

    Raises Invalid before anything is sent where a value cannot be meant, Conflict where the type would change.
    """
    path = path_of(name)
    check_config(config, topic=name)
    put, _ = yield from tell(core, Request("PUT", path, _body(config)), _put, Repeat.SAFE)
    return put


def patch_topic(core: Core, /, name: str, **config: Unpack[PatchFields]) -> Plan[PutTopic]:
    """Change the named fields of a topic's config and leave the others; None returns a field to its default.

    Raises Invalid before anything is sent where a value cannot be meant, NotFound where there is no such topic.
    """
    path = path_of(name)
    check_patch(config, topic=name)
    body = msgspec.json.encode(config)  # a None is a value here
    put, _ = yield from tell(core, Request("PATCH", path, body), _put, Repeat.SAFE)
    return put


def _body(config: Mapping[str, Any]) -> bytes | None:
    return posting("", config).body


def topic(core: Core, name: str, *, touch: bool = False) -> Plan[TopicInfo]:
    """A topic's state and config. ``touch`` counts as a read where a topic's priority follows its use."""
    return (yield from ask(core, query_of(path_of(name), touch=touch), _topic))


def topics(core: Core, *, prefix: str = "", page_size: int = 1000, cursor: str | None = None) -> Plan[TopicPage]:
    """Topics by name, those that the key may see; go on from ``next_cursor``."""
    return (yield from ask(core, query_of("/v0/topics", prefix=prefix, page_size=page_size, cursor=cursor), _page))


def delete_topic(core: Core, name: str, *, if_empty: bool = False) -> Plan[DeletedTopic]:
    """Delete a topic with its records and the routers at either end. Never repeated after a lost answer."""
    request = Request("DELETE", query_of(path_of(name), if_empty=if_empty))
    deleted, _ = yield from tell(core, request, _deleted, Repeat.NEVER)
    return deleted
