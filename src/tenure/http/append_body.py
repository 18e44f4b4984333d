"""The body of an append: the one that must be fast, and the one that carries what is not ours.

A body is decoded once. Where its records have nothing but ``data`` they become plain bytes, which is all the log wants.
Two things msgspec does not do are done here at little cost: a field given twice is noticed by the length of the body;
and half a surrogate pair, which is legal inside ``data`` and refused by the decoder, is written differently while it is
decoded and put back afterwards.
"""

from __future__ import annotations

import secrets
from typing import Final

import msgspec
from msgspec import UNSET, Raw

from tenure.core.records import Record
from tenure.core.surrogates import unveil, veil
from tenure.errors import Invalid
from tenure.http.body import check_json, check_wholes, invalid_body, twice
from tenure.http.depth import DepthMeter
from tenure.http.message import Request
from tenure.http.schemas import AppendBody, ConfigBody, Key, Node, RecordBody

__all__ = ["DEPTH_MAX", "Append", "read_append"]

DEPTH_MAX: Final = 512
"""How deep ``data`` may be nested; readers in other languages have limits of their own."""


class _PlainRecord(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    data: Raw


class _PlainBody(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An `AppendBody` whose records have nothing but data."""

    records: list[_PlainRecord]
    node: Node | None = None
    idempotency_key: Key | None = None
    create: bool = True
    config: ConfigBody | None = None
    client_id: Key | None = None
    client_seq: int | None = None


class Append(msgspec.Struct, frozen=True, gc=False):
    """What an append asks for, its records as the broker takes them."""

    records: list[bytes | Record]
    body: AppendBody | _PlainBody


_decode_plain = msgspec.json.Decoder(_PlainBody).decode
_decode_full = msgspec.json.Decoder(AppendBody).decode
_encode = msgspec.json.Encoder().encode


def read_append(request: Request, *, records_max: int) -> Append:
    """The body of an append, checked but for what the broker checks. Raises Invalid."""
    check_json(request)
    try:
        append, datas = _read(request.body, records_max)
    except msgspec.ValidationError as error:
        raise invalid_body(error) from None
    except RecursionError as error:
        raise invalid_body(error) from None
    except msgspec.DecodeError as error:
        word = secrets.token_hex(8).encode()
        veiled = veil(request.body, word)
        if veiled is None:
            raise invalid_body(error) from None
        append, datas = _read_veiled(veiled, word, records_max)
    if append.body.config is not None:
        check_wholes(append.body.config, "config")
    if max(map(len, datas), default=0) > 2 * DEPTH_MAX:
        _check_depths(datas)
    return append


def _read(body: bytes, records_max: int) -> tuple[Append, list[bytes]]:
    try:
        plain = _decode_plain(body)
    except msgspec.ValidationError:
        return _read_full(body, records_max)
    _check_count(len(plain.records), records_max)
    datas = [bytes(record.data) for record in plain.records]
    _check_twice(body, plain)
    return Append(datas, plain), datas  # type: ignore[arg-type]  # a list of bytes, never written to


def _read_full(body: bytes, records_max: int) -> tuple[Append, list[bytes]]:
    full = _decode_full(body)
    _check_count(len(full.records), records_max)
    datas = [bytes(record.data) for record in full.records]
    _check_twice(body, full)
    return Append(list(map(_record, full.records, datas)), full), datas


def _check_count(count: int, records_max: int) -> None:
    """The broker checks this too; here it comes before a million small records are copied."""
    if count > records_max:
        message = f"{count} records in one append: give 1 to {records_max}"
        raise Invalid(message, code="batch_too_large", limit="records_max", max=records_max)


def _record(given: RecordBody, data: bytes) -> bytes | Record:
    meta = bytes(given.meta) if given.meta is not UNSET else b"null"
    return Record(
        data=data,
        tag=given.tag,
        node=given.node,
        meta=None if meta == b"null" else meta,
        delay_ms=given.delay_ms,
        deliver_at=given.deliver_at,
        unique_key=given.unique_key,
    )


# Fields that are given twice


def _check_twice(body: bytes, parsed: AppendBody | _PlainBody) -> None:
    """Raise Invalid where a field of ours is given twice.

    What was understood, written as short as JSON allows, is as long as the body only where the body says nothing else:
    nothing twice, nothing unknown. That settles it for what most encoders write, with spaces or without. The rest is
    looked through in earnest.
    """
    shortest = _encode(parsed)
    if len(shortest) == len(body) or len(_squeeze(shortest)) == len(_squeeze(body)):
        return
    field = twice(body, AppendBody)
    if field is not None:
        raise Invalid(f"{field} is given twice: give it once", field=field)


def _squeeze(text: bytes) -> bytes:
    return text.translate(None, b" \t\r\n")


# Half a surrogate pair


def _read_veiled(body: bytes, word: bytes, records_max: int) -> tuple[Append, list[bytes]]:
    try:
        append, datas = _read(body, records_max)
    except (msgspec.DecodeError, RecursionError) as error:
        raise invalid_body(error) from None
    if body.count(word) != sum(data.count(word) for data in datas):
        raise Invalid("a string outside of data holds half of a surrogate pair")
    datas = [unveil(data, word) for data in datas]
    records: list[bytes | Record] = [
        data if type(record) is bytes else msgspec.structs.replace(record, data=data)  # type: ignore[type-var]
        for record, data in zip(append.records, datas, strict=True)
    ]
    return Append(records, append.body), datas


# Depth


def _check_depths(datas: list[bytes]) -> None:
    for index, data in enumerate(datas):
        if data.count(b"[") + data.count(b"{") > DEPTH_MAX and _is_deep(data):
            raise Invalid(f"records[{index}].data is nested deeper than {DEPTH_MAX}", field=f"records[{index}].data")


def _is_deep(data: bytes) -> bool:
    meter = DepthMeter()
    meter.feed(data)
    return meter.peak > DEPTH_MAX
