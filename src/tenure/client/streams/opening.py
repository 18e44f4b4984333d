"""Open an event stream, and decode the error frame that it may end with."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.client.plan.answers import error_from_code, error_of
from tenure.client.plan.steps import Open, Plan
from tenure.client.streams.sse import Frame
from tenure.client.transport.wire import Request
from tenure.errors import TenureError

__all__ = ["error_of_frame", "open_stream"]


class _Error(msgspec.Struct):
    code: int = 0
    error: str = ""
    message: str = ""
    detail: dict[str, Any] = {}


_decode_error = msgspec.json.Decoder(_Error).decode


def error_of_frame(frame: Frame) -> TenureError:
    """Return the error in an ``error`` frame, which is the last one of its stream."""
    try:
        fields = _decode_error(frame.data)
    except msgspec.DecodeError:
        fields = _Error()
    return error_from_code(fields.code, fields.error, fields.message or "the stream ended with an error", fields.detail)


def open_stream(request: Request) -> Plan[Any]:
    """Open a stream and return it. Raises the error of an answer that is no stream."""
    stream = yield Open(request)
    if stream.response.status != 200:
        stream.close()
        raise error_of(stream.response)
    kind = stream.response.headers.get("content-type", "text/event-stream")
    if not kind.startswith("text/event-stream"):
        stream.close()
        raise TenureError(f"this is no stream but {kind}: is the URL that of a Tenure server?", code="bad_answer")
    return stream
