"""Requests of the calls: build one from a command, send it with retries, decode its reply."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec
from msgspec.json import Decoder

from tenure.client.plan.encode import encode_body
from tenure.client.plan.retry import exchange, reply_of
from tenure.client.plan.session import Session
from tenure.client.plan.steps import Plan
from tenure.client.transport.wire import Request
from tenure.contract.repeat import Repeat
from tenure.errors import Invalid

__all__ = ["BODY_BYTES_MAX", "call", "get", "request_of"]

T = TypeVar("T")
BODY_BYTES_MAX: Final = 64 * 1024
"""What a server takes of any call but an append, unless it was set otherwise; every batch of ours fits."""


def request_of(
    path: str, body: msgspec.Struct, *, method: str = "POST", wait_ms: int = 0, step_ms_max: int = 0
) -> Request:
    """Return a request with a command as its body, other than an append. Raises Invalid for one that no server reads.

    ``wait_ms`` is how long the server may keep the answer back.
    """
    text = encode_body(body)
    if len(text) > BODY_BYTES_MAX:
        raise Invalid(
            f"this call takes {len(text)} bytes, and a server reads {BODY_BYTES_MAX}: name fewer things at once",
            code="payload_too_large",
            max=BODY_BYTES_MAX,
        )
    return Request(method, path, text, wait_ms=wait_ms, step_ms_max=step_ms_max)


def get(session: Session, path: str, decoder: Decoder[T]) -> Plan[T]:
    """Read what is at a path and return it decoded."""
    reply, _ = yield from call(session, Request("GET", path), decoder, Repeat.READ)
    return reply


def call(session: Session, request: Request, decoder: Decoder[T], repeat: Repeat) -> Plan[tuple[T, bool]]:
    """Send a request; return its reply, and whether an earlier copy of it may have arrived."""
    answered = yield from exchange(session, request, repeat)
    return reply_of(decoder, answered, repeat), answered.repeated
