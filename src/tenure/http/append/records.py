"""Some records of an append, decoded and checked in steps."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from typing import Final

import msgspec
from msgspec import UNSET

from tenure.contract.bodies import RecordBody
from tenure.contract.records import Record
from tenure.errors import Invalid
from tenure.http.api.body import invalid_body, struct_names, twice
from tenure.http.append.depth import DepthMeter
from tenure.http.append.json_cursor import Cursor
from tenure.http.append.request import DEPTH_MAX, AppendLimits, PlainRecord, record_of

__all__ = ["check_depth", "decode_records", "find_data", "given_twice"]

_DEPTH_BYTES: Final = 64 * 1024
"""How much of one value is measured in a step."""
_PARSED_BYTES_MAX: Final = 4 * 1024
_NAMES: Final = frozenset(struct_names(RecordBody))
_INDEX: Final = re.compile(r"\$\[(\d+)\]")

_decode_plain = msgspec.json.Decoder(list[PlainRecord]).decode
_decode_full = msgspec.json.Decoder(list[RecordBody]).decode
_encode = msgspec.json.Encoder().encode


def decode_records(
    texts: list[bytes], *, first: int, limits: AppendLimits
) -> Generator[None, None, list[bytes | Record]]:
    """Decode records that are valid JSON, step by step; ``first`` is the index of the first one. Raises Invalid."""
    joined = b"[%b]" % b",".join(texts)
    parsed = _decode(joined, first)
    yield
    if not _is_all_parsed(joined, parsed):
        for index, (text, record) in enumerate(zip(texts, parsed, strict=True), first):
            _check_fields_size(text, record, index=index, limits=limits)
            yield from _check_twice(text, index=index, limits=limits)
    datas = [bytes(record.data) for record in parsed]
    for index, data in enumerate(datas, first):
        if len(data) > 2 * DEPTH_MAX:
            yield from check_depth(data, f"records[{index}].data")
    return [
        data if isinstance(record, PlainRecord) else record_of(record, data)
        for record, data in zip(parsed, datas, strict=True)
    ]


def _decode(joined: bytes, first: int) -> Sequence[PlainRecord | RecordBody]:
    try:
        return _decode_plain(joined)
    except msgspec.ValidationError:
        pass
    try:
        return _decode_full(joined)
    except msgspec.ValidationError as error:
        # The path is one within these records: make it one within the body.
        message = _INDEX.sub(lambda found: f"$.records[{first + int(found[1])}]", str(error), count=1)
        raise invalid_body(msgspec.ValidationError(message)) from None


def _is_all_parsed(joined: bytes, parsed: Sequence[PlainRecord | RecordBody]) -> bool:
    """Return whether the text has nothing beside what was parsed: it is as long as JSON makes that, but for spaces."""
    shortest = _encode(parsed)
    return len(shortest) == len(joined) or len(_squeeze(shortest)) == len(_squeeze(joined))


def _squeeze(text: bytes) -> bytes:
    return text.translate(None, b" \t\r\n")


def given_twice(field: str) -> Invalid:
    """Return the error for a field of ours that is given twice."""
    return Invalid(f"{field} is given twice: give it once", field=field)


def _check_fields_size(text: bytes, record: PlainRecord | RecordBody, *, index: int, limits: AppendLimits) -> None:
    """Raise Invalid for a record whose other fields are so large that they cannot be ours."""
    size, most = len(text.rstrip()) - len(bytes(record.data)), limits.record_fields_bytes_max
    if isinstance(record, RecordBody) and record.meta is not UNSET:
        size -= len(bytes(record.meta))
    if size > most:
        raise Invalid(
            f"records[{index}] has more than {most} bytes beside data and meta: send only what the server knows",
            field=f"records[{index}]",
            limit="record_fields_bytes_max",
            max=most,
        )


def _check_twice(text: bytes, *, index: int, limits: AppendLimits) -> Iterator[None]:
    """Raise Invalid where a field of ours is given twice. A small record is parsed for that, which takes less time."""
    if len(text) > _PARSED_BYTES_MAX:
        yield from find_data(text, index=index, limits=limits)
    else:
        field = twice(text, RecordBody)
        if field is not None:
            raise given_twice(f"records[{index}].{field}")
        yield


def find_data(text: bytes, *, index: int, limits: AppendLimits) -> Generator[None, None, tuple[int, int]]:
    """Return where in a record's text its data starts and ends. Raises Invalid for a field of ours given twice."""
    cursor, seen = Cursor(text), set[str]()
    span = 0, 0
    cursor.expect(b"{")
    for _ in range(limits.record_fields_max):
        name = cursor.key(len(text))
        if name in seen:
            raise given_twice(f"records[{index}].{name}")
        if name in _NAMES:
            seen.add(name)
        start = cursor.at
        cursor.skip(len(text))
        if name == "data":
            span = start, start + len(text[start : cursor.at].rstrip())
        if not cursor.take(b","):
            return span
        yield
    raise Invalid(
        f"records[{index}] has more than {limits.record_fields_max} fields: send only what the server knows",
        field=f"records[{index}]",
        limit="record_fields_max",
        max=limits.record_fields_max,
    )


def check_depth(data: bytes, path: str) -> Iterator[None]:
    """Raise Invalid for a value that is nested too deeply."""
    if data.count(b"[") + data.count(b"{") > DEPTH_MAX:
        meter = DepthMeter()
        for start in range(0, len(data), _DEPTH_BYTES):
            meter.feed(data[start : start + _DEPTH_BYTES])
            if meter.peak > DEPTH_MAX:
                raise Invalid(f"{path} is nested deeper than {DEPTH_MAX}", field=path)
            yield
