"""Pack the headers and the body of one message, as short as possible, because Redis keeps them in memory.

The envelope is one byte that no UTF-8 text begins with, then a MessagePack array of headers and body. Names of common
headers are numbers, and a correlation id equal to the timer's own id is left out. Bytes without that first byte are a
body without headers, so that payloads of ``Timers.schedule`` can be handled too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tenure.errors import Invalid

__all__ = ["pack", "unpack"]

_MARK: Final = b"\xc1"
_CORRELATION_ID: Final = "correlation_id"
_CONTENT_TYPE: Final = "content-type"
_NAMES: Final = (_CORRELATION_ID, _CONTENT_TYPE, "reply_to")
_CONTENT_TYPES: Final = ("application/json", "text/plain")
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(tuple[dict[int | str, Any], bytes])


def pack(body: bytes, headers: Mapping[str, Any], *, timer_id: str) -> bytes:
    """Return the envelope of a message. Raises Invalid for headers that MessagePack cannot hold."""
    short: dict[int | str, Any] = {}
    for name, value in headers.items():
        if name == _CORRELATION_ID and value == timer_id:
            continue
        if name == _CONTENT_TYPE and value in _CONTENT_TYPES:
            value = _CONTENT_TYPES.index(value)
        short[_NAMES.index(name) if name in _NAMES else name] = value
    try:
        return _MARK + _encoder.encode((short, body))
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise Invalid(f"headers must be texts, numbers or lists and mappings of them: {error}") from error


def unpack(data: bytes, *, timer_id: str) -> tuple[bytes, dict[str, Any]]:
    """Return the body and the headers of stored bytes; bytes that are not an envelope are a body."""
    if not data.startswith(_MARK):
        return data, {}
    try:
        short, body = _decoder.decode(memoryview(data)[1:])
    except msgspec.MsgspecError:
        return data, {}
    headers: dict[str, Any] = {_CORRELATION_ID: timer_id}
    for key, value in short.items():
        name = _NAMES[key] if isinstance(key, int) and 0 <= key < len(_NAMES) else str(key)
        is_code = name == _CONTENT_TYPE and isinstance(value, int) and 0 <= value < len(_CONTENT_TYPES)
        headers[name] = _CONTENT_TYPES[value] if is_code else value
    return body, headers
