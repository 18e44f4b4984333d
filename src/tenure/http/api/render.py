"""Rendering of replies as bytes. ``data`` and ``meta`` are copied as they were given, never parsed or encoded again."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Final

import msgspec

from tenure.contract.records import Stored
from tenure.contract.replies import Tombstone
from tenure.http.api.app import Call
from tenure.http.wire.message import Request, Response

__all__ = ["as_fields", "encode", "gap_text", "performance", "record", "reply"]

encode: Final = msgspec.json.Encoder().encode
"""A value of ours as JSON: names, numbers, configs. Never ``data`` or ``meta``."""


def performance(request: Request, fsync_ms: float | None = None) -> bytes:
    """Return the member that every body ends with; ``fsync_ms`` belongs to writes."""
    total_ms = (perf_counter() - request.started) * 1000
    if fsync_ms is None:
        return b'"performance":{"server_total_ms":%.3f}' % total_ms
    return b'"performance":{"server_total_ms":%.3f,"fsync_ms":%.3f}' % (total_ms, fsync_ms)


def reply(
    request: Request, fields: dict[str, Any] | msgspec.Struct, *, status: int = 200, fsync_ms: float | None = None
) -> Response:
    """Make a response from values of ours, ``performance`` added."""
    body = encode(fields)
    head = body[:-1] + b"," if fields else b"{"
    return Response(status, head + performance(request, fsync_ms) + b"}")


def as_fields(call: Call, answered: msgspec.Struct, fsync_ms: float) -> Response:
    """Render a reply whose fields are those of the response."""
    return reply(call.request, answered, fsync_ms=fsync_ms)


def record(stored: Stored, *, tags: bool = True, meta: bool = True, data: bool = True) -> bytes:
    """Render a record for a reader: an absent field is left out, not null."""
    out = b'{"$seq":%d,"$ts":%d' % (stored.seq, stored.ts)
    if stored.node is not None:
        out += b',"$node":' + encode(stored.node)
    if tags and stored.tag is not None:
        out += b',"$tag":' + encode(stored.tag)
    if data:
        out += b',"data":' + stored.data
    if meta and stored.meta is not None:
        out += b',"meta":' + stored.meta
    return out + b"}"


def gap_text(gap: Tombstone, *, topic: str | None = None) -> bytes:
    """Return a tombstone; on a watch, which follows several topics, its topic comes first."""
    fields = msgspec.structs.asdict(gap)
    del fields["topic"]
    return encode(fields if topic is None else {"topic": topic} | fields)
