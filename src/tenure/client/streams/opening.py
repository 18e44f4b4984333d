"""How a stream begins, and the error that it may end with."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.client.plan.answers import error_from_code, error_of
from tenure.client.plan.steps import Open, Plan
from tenure.client.streams.sse import Frame
from tenure.client.transport.wire import Request
from tenure.errors import TenureError

__all__ = ["error_in", "opened"]


class _Error(msgspec.Struct):
    code: int = 0
    error: str = ""
    message: str = ""
    detail: dict[str, Any] = {}


_decode_error = msgspec.json.Decoder(_Error).decode


def error_in(frame: Frame) -> TenureError:
    """The error that an ``error`` frame tells of: the stream's last word."""
    try:
        said = _decode_error(frame.data)
    except msgspec.DecodeError:
        said = _Error()
    return error_from_code(said.code, said.error, said.message or "the stream ended with an error", said.detail)


def opened(request: Request) -> Plan[Any]:
    """Open a stream. Raises the error that the server answers with instead, and where something else answers."""
    stream = yield Open(request)
    if stream.response.status != 200:
        stream.close()
        raise error_of(stream.response)
    kind = stream.response.headers.get("content-type", "text/event-stream")
    if not kind.startswith("text/event-stream"):
        stream.close()
        raise TenureError(f"this is no stream but {kind}: is the URL that of a Tenure server?", code="bad_answer")
    return stream
