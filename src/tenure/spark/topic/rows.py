"""Rows as records of a topic: the meaning of each column, and each row as it will stand in the body of an append.

Tasks do this, so that a row which the server would refuse is found before anything is chosen or appended, and the
driver only passes bytes on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.client.plan.encode import RecordText, record_text
from tenure.contract import records
from tenure.contract.names import check_node, check_tag
from tenure.contract.provenance import reserved_key
from tenure.errors import Invalid, TenureError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["check_columns", "record_texts"]

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_TYPES: Mapping[str, tuple[str, ...]] = {
    "payload": ("string", "binary"),
    "tag": ("string",),
    "node": ("string",),
    "meta": ("string", "binary"),
    "delay_ms": _WHOLE,
    "deliver_at": ("timestamp", *_WHOLE),
}
_QUEUE_ONLY = ("delay_ms", "deliver_at")
_META_BYTES_MAX = 16 << 10
_META_KEYS_MAX = 64
_DEPTH_MAX = 512
_TIME_MAX = 1 << 53
_decode_meta = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def check_columns(columns: Iterable[tuple[str, str]], *, topic_type: str | None = None) -> None:
    """Check the names and types (as in ``DataFrame.dtypes``) of what is to be written.

    Raises Invalid (``bad_columns``): before anything is written.
    """
    given = dict(columns)
    wanted = "payload (string or binary), and if wanted tag, node, meta, delay_ms, deliver_at"
    if "payload" not in given:
        raise _bad_columns(f"there is no column payload. A topic takes {wanted}; to_json(struct(*)) makes one")
    if unknown := sorted(set(given) - set(_TYPES)):
        raise _bad_columns(f"a topic has no place for {', '.join(unknown)}: select {wanted}")
    for name, kind in given.items():
        if kind not in _TYPES[name]:
            raise _bad_columns(f"column {name} is {kind}: it must be {' or '.join(_TYPES[name])}")
    if topic_type == "log" and (late := [name for name in _QUEUE_ONLY if name in given]):
        raise _bad_columns(f"{' and '.join(late)} belong to queues, and this topic is a log")


def record_texts(batch: pa.RecordBatch, *, record_bytes_max: int) -> Iterator[RecordText]:
    """Yield each row of checked columns as a record. Raises Invalid (``bad_payload``, ``record_too_large``)."""
    names = batch.schema.names
    columns = [_values(name, batch.column(number)) for number, name in enumerate(names)]
    for values in zip(*columns, strict=True):
        row = dict(zip(names, values, strict=True))
        try:
            yield _record_text(row, record_bytes_max)
        except TenureError as error:
            code = error.code if error.code == "record_too_large" else "bad_payload"
            raise Invalid(f"a row cannot be a record: {error.message}", code=code) from error


def _values(name: str, column: Any) -> list[Any]:
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())
    elif name in ("payload", "meta"):
        column = column.cast(pa.binary())
    values: list[Any] = column.to_pylist()
    return values


def _record_text(row: Mapping[str, Any], record_bytes_max: int) -> RecordText:
    data, meta = row["payload"], row.get("meta")
    if data is None:
        raise Invalid("its payload is null, and JSON's null is the text null")
    size = len(data) + len(meta or b"")
    if size > record_bytes_max:
        message = f"it has {size} bytes, at most {record_bytes_max}: store it elsewhere, send its address"
        raise Invalid(message, code="record_too_large")
    _check_json(data)
    if len(row) == 1:
        return record_text(data)
    _check_about(row)
    return record_text(
        records.Record(
            data=data,
            tag=row.get("tag"),
            node=row.get("node"),
            meta=meta,
            delay_ms=row.get("delay_ms") or 0,
            deliver_at=row.get("deliver_at"),
        )
    )


def _check_json(data: bytes) -> None:
    """Check what `record_text` does not."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise Invalid(f"its payload is not UTF-8: {error}") from None
    if data.count(b"[") + data.count(b"{") > _DEPTH_MAX and _depth(data) > _DEPTH_MAX:
        raise Invalid(f"its payload is nested deeper than {_DEPTH_MAX}")


def _depth(data: bytes) -> int:
    deepest = depth = 0
    for token in _TOKENS.finditer(data):
        first = data[token.start()]
        depth += (first in b"[{") - (first in b"]}")
        deepest = max(deepest, depth)
    return deepest


def _check_about(row: Mapping[str, Any]) -> None:
    if row.get("tag") is not None:
        check_tag(row["tag"])
    if row.get("node") is not None:
        check_node(row["node"])
    for name in _QUEUE_ONLY:
        value = row.get(name)
        if value is not None and not 0 <= value < _TIME_MAX:
            raise Invalid(f"{name} must be milliseconds from 0, or a time after 1970; got {value}")
    if (meta := row.get("meta")) is not None:
        _check_meta(meta)


def _check_meta(meta: bytes) -> None:
    try:
        meta.decode()
        keys = _decode_meta(meta)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise Invalid("its meta must be a JSON object") from None
    if len(meta) > _META_BYTES_MAX or len(keys) > _META_KEYS_MAX:
        raise Invalid(f"its meta must have at most {_META_BYTES_MAX} bytes and {_META_KEYS_MAX} keys")
    reserved = reserved_key(keys)
    if reserved is not None:
        raise Invalid(f"its meta has {reserved}, which the broker alone writes: leave it out")


def _bad_columns(message: str) -> Invalid:
    return Invalid(message, code="bad_columns")
