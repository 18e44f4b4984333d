"""The request of an append, decoded from its body; and the limits of that body."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

import msgspec
from msgspec import UNSET, Raw

from tenure.contract.bodies import AppendBody, RecordBody
from tenure.contract.config_body import ConfigBody
from tenure.contract.fields import Key, Node
from tenure.contract.records import Record
from tenure.errors import Invalid

__all__ = ["DEPTH_MAX", "Append", "AppendLimits", "PlainBody", "PlainRecord", "Steps", "check_count", "record_of"]

DEPTH_MAX: Final = 512
"""How deep ``data`` may be nested; readers in other languages have limits of their own."""


class AppendLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one append. See the settings of the same names."""

    records_max: int
    record_bytes_max: int
    append_fields_bytes_max: int
    record_fields_bytes_max: int
    record_fields_max: int
    append_whole_bytes_max: int


class PlainRecord(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A `RecordBody` that has nothing but data."""

    data: Raw


class PlainBody(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An `AppendBody` whose records have nothing but data."""

    records: list[PlainRecord]
    node: Node | None = None
    idempotency_key: Key | None = None
    create: bool = True
    config: ConfigBody | None = None
    client_id: Key | None = None
    client_seq: int | None = None


class Append(msgspec.Struct, frozen=True, gc=False):
    """A decoded append, its records as the broker takes them."""

    records: list[bytes | Record]
    body: AppendBody | PlainBody


Steps = Generator[None, None, Append]
"""An append that is being read step by step: each step is short, and the last one returns it."""


def check_count(count: int, records_max: int) -> None:
    """Raise Invalid for too many records: the broker checks this too, here it comes before they are copied."""
    if count > records_max:
        message = f"{count} records or more in one append: give 1 to {records_max}"
        raise Invalid(message, code="batch_too_large", limit="records_max", max=records_max)


def record_of(given: RecordBody, data: bytes) -> Record:
    """Return a record as the broker takes it; ``data`` in place of what the body has."""
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
