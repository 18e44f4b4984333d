"""Encode values, records and commands into request bodies; build paths and queries.

JSON text that the caller already has is kept byte for byte.

A `tenure.Record` or bytes is JSON text; it is checked to be exactly one JSON value, because it is spliced into the body
as it is. Anything else is encoded: what msgspec knows (Structs, dataclasses, dicts, dates, UUIDs) and pydantic models.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import UNSET

from tenure.contract.bodies import RecordBody
from tenure.contract.names import check_tag, check_topic_name, describe_value
from tenure.contract.records import Record
from tenure.contract.values import check_seqs
from tenure.errors import Invalid

__all__ = [
    "JsonText",
    "RecordText",
    "encode_body",
    "json_text",
    "list_match",
    "list_seqs",
    "path_of",
    "query_of",
    "record_text",
    "records_text",
]

SEQS_MAX = 1_000
JsonText = bytes


def _model(value: Any) -> msgspec.Raw:
    """Encode a pydantic model inside a value."""
    dump = getattr(type(value), "model_dump_json", None)
    if dump is None:
        raise NotImplementedError(f"{type(value).__name__} has no JSON form")
    return msgspec.Raw(dump(value).encode())


_encode = msgspec.json.Encoder(enc_hook=_model).encode
_look = msgspec.json.Decoder(msgspec.Raw).decode
_TEXTS = (bytes, bytearray, memoryview, msgspec.Raw)
"""Types of JSON text."""


def json_text(value: Any) -> JsonText:
    """Encode a value as JSON text. Raises Invalid where it has no such form."""
    return _checked(bytes(value)) if isinstance(value, _TEXTS) else _encode_values(value)


def _encode_values(value: Any) -> bytes:
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError, NotImplementedError) as error:
        raise Invalid(f"this value cannot be written as JSON: {error}") from error


def _checked(text: bytes) -> bytes:
    try:
        _look(text)
    except RecursionError:
        raise Invalid("bytes must be one JSON value; this one is nested too deeply") from None
    except msgspec.DecodeError:  # a lone surrogate, which JSON allows, or no JSON at all
        try:
            json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise Invalid(f"bytes must be one JSON value: {error}; got {describe_value(text)}") from None
    return text


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


class RecordText(bytes):
    """One record, checked and encoded as the body of an append has it."""

    __slots__ = ()


def records_text(records: Iterable[Any]) -> bytes:
    """Encode the ``records`` of an append as a JSON array. Raises Invalid, also where there is none."""
    if isinstance(records, (str, bytes, bytearray, Mapping, Record)):
        raise Invalid("records must be a list of records; got one alone: put it in a list")
    entries = [_Entry(record) if type(record) in _PLAIN else _entry(record) for record in records]
    if not entries:
        raise Invalid("records must hold at least one record")
    return _encode_values(entries)


class _Entry(msgspec.Struct, frozen=True, gc=False):
    """A record that has nothing but data, which is encoded with all others in one go."""

    data: Any


_PLAIN = frozenset({dict, list, str, int, float, bool, type(None)})
"""Types of values that are neither JSON text nor a record."""


def _entry(record: Any) -> msgspec.Raw | _Entry:
    if isinstance(record, RecordText):
        return msgspec.Raw(record)
    if isinstance(record, Record):
        return msgspec.Raw(record_text(record))
    return _Entry(msgspec.Raw(_checked(bytes(record))) if isinstance(record, _TEXTS) else record)


def record_text(value: Any) -> RecordText:
    """Encode one record for `records_text`, ahead of time. Raises Invalid."""
    if not isinstance(value, Record):
        return RecordText(b'{"data":%b}' % json_text(value))
    record = RecordBody(
        data=msgspec.Raw(_checked(value.data)),
        tag=None if value.tag is None else check_tag(value.tag),
        node=value.node,
        meta=UNSET if value.meta is None else msgspec.Raw(_checked(value.meta)),
        delay_ms=value.delay_ms,
        deliver_at=value.deliver_at,
        unique_key=value.unique_key,
    )
    return RecordText(encode_body(record))


def encode_body(body: msgspec.Struct | Mapping[str, Any]) -> bytes:
    """Encode a body of ours. Raises Invalid for a value that has no JSON form."""
    try:
        return _encode(body)
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
        raise Invalid(f"this cannot be sent: {error}") from error


def path_of(topic: str, *more: str) -> str:
    """Return the path of a topic, or of something below it. Raises Invalid for a bad name."""
    return "/".join(("/v0/topics", check_topic_name(topic), *more))


def query_of(path: str, **fields: str | int | bool | None) -> str:
    """Return a path with its query; a field that is None is left out."""
    given = [
        f"{name}={quote(str(value).lower() if isinstance(value, bool) else str(value), safe='')}"
        for name, value in fields.items()
        if value is not None
    ]
    return f"{path}?{'&'.join(given)}" if given else path


def list_seqs(seqs: Iterable[int]) -> list[int]:
    """Return seqs as they are sent. Raises Invalid."""
    listed = list(seqs)
    check_seqs(listed, count_max=SEQS_MAX, limit="seqs_max")
    return listed


def list_match(match: str | Sequence[str] | None) -> str | list[str] | None:
    """Return a condition on tags as it is sent."""
    return match if match is None or isinstance(match, str) else list(match)
