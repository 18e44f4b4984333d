"""The step that every call shares: a request, repeated as its kind allows, and its answer as a reply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from tenure.client.plan.encode import body_of
from tenure.client.plan.retry import Repeat, exchange, reply_of
from tenure.client.plan.session import Core
from tenure.client.plan.steps import Plan
from tenure.client.transport.wire import Request
from tenure.errors import Invalid

__all__ = ["BODY_BYTES_MAX", "ask", "posting", "tell"]

T = TypeVar("T")
BODY_BYTES_MAX: Final = 64 * 1024
"""What a server takes of any call but an append, unless it was set otherwise; every batch of ours fits."""


def posting(
    path: str, fields: Mapping[str, Any], *, method: str = "POST", wait_ms: int = 0, step_ms_max: int = 0
) -> Request:
    """A request with a body, other than an append. Raises Invalid for one that no server would read."""
    body = body_of(fields)
    if len(body) > BODY_BYTES_MAX:
        raise Invalid(
            f"this call takes {len(body)} bytes, and a server reads {BODY_BYTES_MAX}: name fewer things at once",
            code="payload_too_large",
            max=BODY_BYTES_MAX,
        )
    return Request(method, path, body, wait_ms=wait_ms, step_ms_max=step_ms_max)


def ask(core: Core, path: str, decoder: msgspec.json.Decoder[T]) -> Plan[T]:
    """Read something."""
    return reply_of(decoder, (yield from exchange(core, Request("GET", path), Repeat.READ)), Repeat.READ)


def tell(core: Core, request: Request, decoder: msgspec.json.Decoder[T], repeat: Repeat) -> Plan[tuple[T, bool]]:
    """Send a request; returns its reply, and whether an earlier copy of it may have arrived."""
    answered = yield from exchange(core, request, repeat)
    return reply_of(decoder, answered, repeat), answered.repeated
