"""Provenance of a dead letter: keys in its ``meta`` that name its queue, its job, its deliveries and the reason.

The broker alone writes them: an append whose ``meta`` has such a key is refused, or a producer could send a job to a
queue that it does not reach by the hand of an operator who redrives. Reading still trusts nothing, as a log may hold
letters from before that rule: a key with an impossible value counts as absent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

__all__ = ["KEYS", "Provenance", "read", "reserved_key", "stamp"]

_RESERVED: Final = "$dead_letter_"
_FROM: Final = "$dead_letter_from"
_DELIVERIES: Final = "$dead_letter_deliveries"
_SRC_SEQ: Final = "$dead_letter_src_seq"
_REASON: Final = "$dead_letter_reason"
_LOST: Final = "$dead_letter_lost"
_TRIES: Final = "$dead_letter_tries"
KEYS: Final = (_FROM, _DELIVERIES, _SRC_SEQ, _REASON, _LOST, _TRIES)

_DELIVERIES_MAX: Final = 2**32 - 1
_LOST_MAX: Final = 255
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class Provenance(NamedTuple):
    """Origin of a dead letter. ``seq`` and ``deliveries`` are 0, and ``reason`` is empty, where they are not known.

    ``lost`` is how often its worker was lost; with more than 0 it is a suspect again where it is redriven. ``tries`` is
    how many of its deliveries count; 0 where all of them do.
    """

    topic: str
    seq: int
    deliveries: int
    reason: str
    lost: int = 0
    tries: int = 0


def reserved_key(keys: Iterable[str]) -> str | None:
    """Return the first key that only the broker may write into a ``meta``, or None."""
    for key in keys:
        if key.startswith(_RESERVED):
            return key
    return None


def stamp(meta: bytes | None, provenance: Provenance) -> bytes:
    """Return the ``meta`` of a dead letter: that of its job, with the keys added; those of losses and of tries only
    where they say something.
    """
    fields: dict[str, Any] = dict(_decode(meta)) if meta is not None else {}
    fields[_FROM] = provenance.topic
    fields[_DELIVERIES] = provenance.deliveries
    fields[_SRC_SEQ] = provenance.seq
    fields[_REASON] = provenance.reason
    for key, count in ((_LOST, provenance.lost), (_TRIES, provenance.tries)):
        fields.pop(key, None)
        if count:
            fields[key] = count
    return _encode(fields)


def read(meta: bytes | msgspec.Raw | None) -> Provenance | None:
    """Return the provenance in a ``meta``, or None where the record is not a dead letter."""
    if meta is None:
        return None
    fields = _decode(meta)
    source = _value(fields, _FROM)
    if not isinstance(source, str):
        return None
    seq, reason = _value(fields, _SRC_SEQ), _value(fields, _REASON)
    return Provenance(
        source,
        seq if isinstance(seq, int) else 0,
        _count(fields, _DELIVERIES, _DELIVERIES_MAX),
        reason if isinstance(reason, str) else "",
        _count(fields, _LOST, _LOST_MAX),
        _count(fields, _TRIES, _DELIVERIES_MAX),
    )


def _count(fields: dict[str, msgspec.Raw], key: str, most: int) -> int:
    value = _value(fields, key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most else 0


def _value(fields: dict[str, msgspec.Raw], key: str) -> Any:
    try:
        return msgspec.json.decode(fields[key]) if key in fields else None
    except (msgspec.DecodeError, RecursionError):
        return None
