"""Bodies of requests that are not commands: appends, reads, watches and hand-overs.

Unknown fields are ignored, known ones are checked. A field whose default is null may be null; any other may only be
left out. The broker checks bounds that depend on settings.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from tenure.contract.config_body import ConfigBody
from tenure.contract.fields import Key, Node, Tag, Time, Whole

__all__ = ["AppendBody", "DiffBody", "Gone", "HandOverBody", "HelloBody", "RecordBody", "WatchBody", "WatchFrom"]

_ANY_JSON: Final = Meta(description="Any JSON value; kept and returned byte for byte.", extra_json_schema={})
_META: Final = Meta(description="A JSON object, kept byte for byte.", extra_json_schema={"type": ["object", "null"]})


class RecordBody(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One record of an append."""

    data: Annotated[Raw, _ANY_JSON]
    tag: Tag | None = None
    node: Node | None = None
    meta: Annotated[Raw, _META] | UnsetType = UNSET  # null means absent; only the text shows which it was
    delay_ms: Time = 0
    deliver_at: Time | None = None
    unique_key: Key | None = None


class AppendBody(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Records to append, all or none. A key or a client's number makes the call safe to repeat."""

    records: Annotated[list[RecordBody], Meta(extra_json_schema={"minItems": 1, "maxItems": 10_000})]
    node: Node | None = None
    idempotency_key: Key | None = None
    create: bool = True
    config: ConfigBody | None = None
    client_id: Key | None = None
    client_seq: Annotated[int, Meta(ge=0, extra_json_schema={"maximum": 2**63 - 1})] | None = None


class DiffBody(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Where to read from, and what to leave out."""

    from_seq: Whole = 0
    limit: Whole = 256
    node: Node | list[Node] | None = None
    include_tags: bool = False
    include_meta: bool = True
    wait_ms: Whole = 0


class HandOverBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The server that is to lead, by the URL that it advertises; empty for any that follows closely enough."""

    to: Annotated[str, Meta(max_length=2_048)] = ""


class Gone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker process that has ended, as its supervisor saw it: the exit code (137 for SIGKILL), and the jobs of
    each queue whose handlers it had begun.
    """

    node: Node
    exit_code: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | None = None
    begun: Annotated[dict[str, Annotated[list[Whole], Meta(max_length=10_000)]], Meta(max_length=1_000)] = {}


class HelloBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker says of itself as it starts, and of the processes that it takes the place of."""

    node: Node
    queues: Annotated[list[str], Meta(max_length=1_000)]
    group: Node | None = None
    host: Annotated[str, Meta(max_length=255)] = ""
    version: Annotated[str, Meta(max_length=64)] = ""
    held: Whole = 0
    gone: Annotated[list[Gone], Meta(max_length=16)] = []


class WatchFrom(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Where to begin on one topic: above ``from_seq``, or with ``tail`` at its head."""

    from_seq: Whole = 0
    tail: bool = False


class WatchBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Follow topics over one stream."""

    topics: Annotated[dict[str, WatchFrom], Meta(min_length=1, max_length=256)]
    node: Node | list[Node] | None = None
    limit: Whole = 256
    max_batch_bytes: Whole = 262_144
    heartbeat_ms: Whole | None = None
    include_meta: bool = True
    include_tags: bool = False
    include_data: bool = True
    consistency: Literal["eventual", "strong"] = "eventual"
