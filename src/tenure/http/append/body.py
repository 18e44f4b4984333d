"""The body of an append: the one that must be fast, and the one that carries what is not ours.

A body of moderate size is decoded whole, once. Where its records have nothing but ``data`` they become plain bytes,
which is all the log wants. Large bodies are read in steps (`scan`), and so is a body that decoding it whole does not
settle: a field that may be given twice, half a surrogate pair, much that may be nested deeply, bad JSON.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tenure.contract.bodies import AppendBody
from tenure.contract.records import Record
from tenure.errors import Invalid
from tenure.http.api.body import check_media, check_wholes, invalid_body, is_plain_json
from tenure.http.append.depth import DepthMeter
from tenure.http.append.request import DEPTH_MAX, Append, AppendLimits, PlainBody, Steps, check_count, record_of
from tenure.http.append.scan import AppendScan
from tenure.http.wire.message import Body, Request

__all__ = ["read_append"]

_DEPTH_BYTES_MAX: Final = 64 * 1024
"""How much ``data`` with many brackets is measured at once; more is measured in steps."""

_decode_plain = msgspec.json.Decoder(PlainBody).decode
_decode_full = msgspec.json.Decoder(AppendBody).decode
_encode = msgspec.json.Encoder().encode


def read_append(request: Request, limits: AppendLimits) -> Append | Steps:
    """Return an append, checked but for what the broker checks; or the steps that lead to it. Both raise Invalid."""
    check_media(request)
    body = request.body
    if len(body) <= limits.append_whole_bytes_max:
        append = _read_whole(body, limits.records_max)
        if append is not None:
            return append
    return AppendScan(body, limits).steps()


def _read_whole(body: Body, records_max: int) -> Append | None:
    """Return the append, or None where it needs a closer look. Raises Invalid."""
    if not is_plain_json(body):
        raise Invalid("the body is not valid UTF-8")
    try:
        parsed: PlainBody | AppendBody = _decode(body)
    except (msgspec.ValidationError, RecursionError) as error:
        raise invalid_body(error) from None
    except msgspec.DecodeError:
        return None
    if len(parsed.records) > records_max:
        check_count(len(parsed.records), records_max)
    datas = [bytes(record.data) for record in parsed.records]
    if not _is_all_parsed(body, parsed) or (len(body) > 2 * DEPTH_MAX and not _are_shallow(datas)):
        return None
    if parsed.config is not None:
        check_wholes(parsed.config, "config")
    if isinstance(parsed, PlainBody):
        return Append(datas, parsed)  # type: ignore[arg-type]  # a list of bytes, never written to
    records: list[bytes | Record] = list(map(record_of, parsed.records, datas))
    return Append(records, parsed)


def _decode(body: Body) -> PlainBody | AppendBody:
    try:
        return _decode_plain(body)
    except msgspec.ValidationError:
        return _decode_full(body)


def _is_all_parsed(body: Body, parsed: AppendBody | PlainBody) -> bool:
    """Return whether the body has nothing beside what was parsed: nothing twice, nothing unknown.

    What was parsed, written as short as JSON allows, is then as long as the body. That settles it for what most
    encoders write, with spaces or without.
    """
    shortest = _encode(parsed)
    return len(shortest) == len(body) or len(_squeeze(shortest)) == len(_squeeze(body))


def _squeeze(text: Body) -> Body:
    return text.translate(None, b" \t\r\n")


def _are_shallow(datas: list[bytes]) -> bool:
    """Return whether nothing is nested too deeply, by a cheap test that may also return False for shallow values."""
    if max(map(len, datas), default=0) <= 2 * DEPTH_MAX:
        return True
    left = _DEPTH_BYTES_MAX
    for data in datas:
        if data.count(b"[") + data.count(b"{") > DEPTH_MAX:
            left -= len(data)
            if left < 0:
                return False
            meter = DepthMeter()
            meter.feed(data)
            if meter.peak > DEPTH_MAX:
                return False
    return True
