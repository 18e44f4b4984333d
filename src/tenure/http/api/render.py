"""Replies as bytes. ``data`` and ``meta`` are spliced in as they were given, never parsed and never encoded again."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Final

import msgspec

from tenure.broker.answer import Answer
from tenure.contract.records import Stored
from tenure.contract.replies import Tombstone
from tenure.core.level import Level
from tenure.http.wire.message import Request, Response

__all__ = ["Stopwatch", "encode", "gap_text", "performance", "record", "reply"]

encode: Final = msgspec.json.Encoder().encode
"""A value of ours as JSON: names, numbers, configs. Never ``data`` or ``meta``."""


class Stopwatch:
    """How long an answer waited for its sync: 0.0 where none gated it. Start it when the broker has answered."""

    __slots__ = ("_gated", "_started")

    def __init__(self, answer: Answer[Any]) -> None:
        self._gated = answer.level == Level.SYNCED
        self._started = perf_counter()

    @property
    def fsync_ms(self) -> float:
        return max((perf_counter() - self._started) * 1000, 0.001) if self._gated else 0.0


def performance(request: Request, fsync_ms: float | None = None) -> bytes:
    """The member that every body ends with; ``fsync_ms`` belongs to writes."""
    if fsync_ms is None:
        return b'"performance":{"server_total_ms":%.3f}' % request.elapsed_ms
    return b'"performance":{"server_total_ms":%.3f,"fsync_ms":%.3f}' % (request.elapsed_ms, fsync_ms)


def reply(
    request: Request,
    answered: msgspec.Struct | dict[str, Any],
    *,
    status: int = 200,
    fsync_ms: float | None = None,
) -> Response:
    """Return a response with a reply or with other values of ours, ``performance`` added."""
    body = encode(answered)
    head = body[:-1] + b"," if len(body) > 2 else b"{"
    return Response(status, head + performance(request, fsync_ms) + b"}")


def record(stored: Stored, *, tags: bool = True, meta: bool = True, data: bool = True) -> bytes:
    """A record as a reader sees it: what is absent is left out, not null."""
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
