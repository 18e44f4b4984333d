"""Check the records of an append against the limits, and lay them out for a frame."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tenure.contract.names import check_key, check_node, check_tag, describe_value
from tenure.contract.provenance import reserved_key
from tenure.contract.records import Record
from tenure.core.events import AppendExtra
from tenure.core.records import Packed, pack
from tenure.errors import Invalid
from tenure.settings import Settings

__all__ = ["Batch", "admit", "build_extra"]

_decode_meta = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Records that passed the checks. ``extras`` are those that ask for more than being stored, None if none does."""

    packed: Packed
    extras: list[Record] | None = None


def admit(records: Sequence[bytes | Record], settings: Settings, *, node: str | None = None) -> Batch:
    """Check one call's records against the limits and pack them. Raises Invalid."""
    if not isinstance(records, (list, tuple)):
        raise Invalid("records must be a list of bytes or Record")
    if not 1 <= len(records) <= settings.records_max:
        raise Invalid(
            f"{len(records)} records in one append: give 1 to {settings.records_max}",
            code="batch_too_large" if records else None,
            limit="records_max",
            max=settings.records_max,
        )
    batch = _admit_bare(records, settings) if node is None else None
    batch = batch or _admit_full(records, settings, node)
    if len(batch.packed.blobs) > settings.append_bytes_max:
        raise Invalid(
            f"{len(batch.packed.blobs)} bytes in one append: at most {settings.append_bytes_max}",
            code="batch_too_large",
            limit="append_bytes_max",
            max=settings.append_bytes_max,
        )
    return batch


def _admit_bare(records: Sequence[bytes | Record], settings: Settings) -> Batch | None:
    if set(map(type, records)) != {bytes}:
        return None
    largest = max(map(len, records))  # type: ignore[arg-type]
    if largest > settings.record_bytes_max:
        raise _too_large([len(r) for r in records].index(largest), largest, settings)  # type: ignore[arg-type]
    return Batch(pack(records))


def _admit_full(records: Sequence[bytes | Record], settings: Settings, node: str | None) -> Batch:
    full = [_check_record(index, record, settings, node) for index, record in enumerate(records)]
    asking = any(r.tag is not None or r.delay_ms or r.deliver_at is not None or r.unique_key is not None for r in full)
    return Batch(pack(full), full if asking else None)


def _check_record(index: int, record: bytes | Record, settings: Settings, node: str | None) -> Record:
    if type(record) is bytes:
        record = Record(data=record)
    if not isinstance(record, Record) or type(record.data) is not bytes:
        raise Invalid(f"records[{index}] must be bytes or a Record whose data is bytes", index=index)
    if record.tag is not None:
        check_tag(record.tag, bytes_max=settings.tag_bytes_max)
    if record.meta is not None:
        _check_meta(record.meta, settings)
    size = len(record.data) + len(record.meta or b"")
    if size > settings.record_bytes_max:
        raise _too_large(index, size, settings)
    if record.unique_key is not None:
        check_key(record.unique_key, field="unique_key", bytes_max=settings.key_bytes_max)
    if record.hops != 0 or type(record.hops) is not int:
        raise Invalid(f"records[{index}]: hops is for routers to count, not for producers to set", index=index)
    if record.node is not None:
        check_node(record.node)
    elif node is not None:
        record = msgspec.structs.replace(record, node=check_node(node))
    _check_times(index, record, settings)
    return record


def _check_times(index: int, record: Record, settings: Settings) -> None:
    for name, value in (("delay_ms", record.delay_ms), ("deliver_at", record.deliver_at)):
        if value is not None and (type(value) is not int or not 0 <= value < 1 << 53):
            raise Invalid(f"records[{index}]: {name} must be an integer of milliseconds, 0 or more", index=index)


def _check_meta(meta: bytes, settings: Settings) -> None:
    """Raise Invalid unless a ``meta`` is the text of a JSON object within the limits, without keys of the broker."""
    if type(meta) is not bytes or len(meta) > settings.meta_bytes_max:
        raise Invalid(f"meta must be bytes, at most {settings.meta_bytes_max}", limit="meta_bytes_max")
    try:
        meta.decode()  # the decoder looks at syntax only
        keys = _decode_meta(meta)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise Invalid("meta must be a JSON object") from None
    if len(keys) > settings.meta_keys_max:
        raise Invalid(f"meta has {len(keys)} keys: at most {settings.meta_keys_max}", limit="meta_keys_max")
    reserved = reserved_key(keys)
    if reserved is not None:
        raise Invalid(f"meta: {describe_value(reserved)} is written by the broker alone: leave it out", field="meta")


def _too_large(index: int, size: int, settings: Settings) -> Invalid:
    return Invalid(
        f"records[{index}] has {size} bytes of data and meta: at most {settings.record_bytes_max}",
        code="record_too_large",
        index=index,
        limit="record_bytes_max",
        max=settings.record_bytes_max,
    )


def build_extra(extras: list[Record], first_seq: int, *, now_ms: int, is_queue: bool) -> AppendExtra:
    """Return the part of the event beyond the records themselves: tags, delays, unique keys."""
    delays: list[int] = []
    wall_delays: list[int] = []
    uniques: list[tuple[int, str]] = []
    for seq, record in enumerate(extras, first_seq):
        if record.deliver_at is not None:
            wall_delays += (seq, record.deliver_at)
        elif record.delay_ms:
            delays += (seq, now_ms + record.delay_ms)
        if record.unique_key is not None:
            uniques.append((seq, record.unique_key))
    if not is_queue and (delays or wall_delays or uniques):
        raise Invalid("delay_ms, deliver_at and unique_key belong to queues: this topic is a log")
    return AppendExtra(any(r.tag is not None for r in extras), delays, wall_delays, uniques)
