"""One put of a producer: its data and options, encoded into the record that is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Generic, TypedDict, TypeVar

from tenure.client.plan.encode import RecordText, json_text, record_text
from tenure.contract.records import Record
from tenure.errors import Invalid

__all__ = ["PLAIN", "Given", "Put", "PutOptions", "outcomes"]

W = TypeVar("W")


class PutOptions(TypedDict, total=False):
    """Options of one put: what goes with its data.

    ``delay_ms`` from now, or ``deliver_at`` in wall ms, hides the job until then. While a job with ``unique_key``
    lives, its seq is returned and nothing is put.
    """

    tag: str | None
    meta: Any
    delay_ms: int
    deliver_at: int | None
    unique_key: str | None


Given = tuple[Any, PutOptions]
"""The data of one put, and its options."""
PLAIN: Final[PutOptions] = {}


class Put(Generic[W]):
    """One put on its way. ``waiter`` is how its driver reaches the caller; ``seq`` or ``error`` is the outcome."""

    __slots__ = ("alone", "cost_bytes", "error", "given", "given_up", "number", "seq", "text", "waiter")

    def __init__(self, given: Given, waiter: W) -> None:
        self.given: Given | None = given
        self.waiter = waiter
        self.text = RecordText()
        self.cost_bytes = 0
        self.alone = False
        self.number = 0
        self.seq = 0
        self.error: Exception | None = None
        self.given_up = False

    def seal(self, *, record_bytes_max: int) -> int:
        """Encode the record and return its size. Raises Invalid where it has no JSON form, or where it is too large:
        before it joins a batch, so that it never fails its neighbours.
        """
        assert self.given is not None, "a put is sealed once"
        data, options = self.given
        record = _record(data, **options)
        if isinstance(record, Record):
            size = len(record.data) + len(record.meta or b"")
            self.alone = record.unique_key is not None
        else:
            size = len(record)
        if size > record_bytes_max:
            message = (
                f"a record of {size} bytes is larger than {record_bytes_max}: store it elsewhere, send its address"
            )
            raise Invalid(message, code="record_too_large", limit="record_bytes_max", max=record_bytes_max)
        self.text = record_text(record) if isinstance(record, Record) else RecordText(b'{"data":%b}' % record)
        self.given = None
        return len(self.text)


def outcomes(puts: Sequence[Put[W]]) -> list[int]:
    """Return the seqs of what one call put. Raises the first error, with a note of which item it was."""
    for index, put in enumerate(puts):
        if put.error is not None:
            put.error.add_note(f"item {index} of {len(puts)}")
            raise put.error
    return [put.seq for put in puts]


def _record(
    data: Any,
    *,
    tag: str | None = None,
    meta: Any = None,
    delay_ms: int = 0,
    deliver_at: int | None = None,
    unique_key: str | None = None,
) -> bytes | Record:
    if tag is None and meta is None and not delay_ms and deliver_at is None and unique_key is None:
        return data if isinstance(data, Record) else json_text(data)
    if isinstance(data, Record):
        raise Invalid("a Record says everything itself: give the options to it")
    return Record(
        data=json_text(data),
        tag=tag,
        meta=None if meta is None else json_text(meta),
        delay_ms=delay_ms,
        deliver_at=deliver_at,
        unique_key=unique_key,
    )
