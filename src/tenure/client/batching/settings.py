"""Limits of `AsyncProducer`, `Producer` and `Acker`, as keyword arguments."""

from __future__ import annotations

from typing import Final, TypedDict

import msgspec

from tenure.contract.names import describe_value
from tenure.errors import Invalid
from tenure.limits import MIB, check_limits

__all__ = ["PUT_BYTES", "AckerOptions", "AckerSettings", "ProducerOptions", "ProducerSettings"]

LINGER_MS_MAX: Final = 5
SEQS_MAX: Final = 1_000
PUT_BYTES: Final = 256
"""The cost of a pending put beside its bytes: its entry, its future, the record around the data."""


class ProducerOptions(TypedDict, total=False):
    """The fields of ProducerSettings, as keyword arguments."""

    batch_records_max: int
    batch_bytes_max: int
    record_bytes_max: int
    pending_bytes_max: int
    linger_ms: float
    create: bool


class ProducerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one producer. Raises Invalid for a bad one."""

    batch_records_max: int = 1_000
    """Records in one request."""
    batch_bytes_max: int = 1 * MIB
    """Bytes of records, as JSON, in one request; a larger one goes alone."""
    record_bytes_max: int = 1 * MIB
    """``data`` and ``meta`` of one record; as the server's own limit."""
    pending_bytes_max: int = 64 * MIB
    """Encoded and not yet durable, with 256 bytes for each put; beyond it a put waits, before it is encoded."""
    linger_ms: float = 0
    """How long the first put after a pause waits for others, at most 5; during a request they gather anyway."""
    create: bool = True
    """Whether a put may create the topic, then as the careful queue of `careful_queue`."""

    def __post_init__(self) -> None:
        check_limits(self)
        if type(self.linger_ms) not in (int, float) or not 0 <= self.linger_ms <= LINGER_MS_MAX:
            raise Invalid(
                f"linger_ms must be from 0 to {LINGER_MS_MAX}; got {describe_value(self.linger_ms)}", field="linger_ms"
            )


class AckerOptions(TypedDict, total=False):
    """The fields of AckerSettings, as keyword arguments."""

    batch_seqs_max: int
    pending_max: int
    requests_max: int


class AckerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one acker. Raises Invalid for a bad one."""

    batch_seqs_max: int = 1_000
    """Seqs in one request; as the server's own limit."""
    pending_max: int = 100_000
    """Jobs whose outcome is not known yet, about 300 bytes each; beyond it, settling one more raises Overloaded."""
    requests_max: int = 4
    """Requests in flight. Those of equal parameters go one after the other, so that they gather."""

    def __post_init__(self) -> None:
        check_limits(self, most={"batch_seqs_max": SEQS_MAX})
