"""`client.queue("emails")`: one queue, and values instead of JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec

from tenure.client.calls import queues, records
from tenure.client.config import careful_queue
from tenure.client.core import Core
from tenure.client.drive import Awaiting, Blocking, drive, drive_async
from tenure.client.encode import json_text
from tenure.client.lease import AsyncLease, Lease, Leased
from tenure.client.plan import Plan
from tenure.client.wire import AsyncWire, Wire
from tenure.core.names import check_topic_name
from tenure.core.records import Record
from tenure.errors import Invalid

__all__ = ["AsyncQueue", "Queue"]

T = TypeVar("T")


class _Named(msgspec.Struct, frozen=True):
    """What a queue handle is made of."""

    core: Core
    name: str
    type: Any


def put(
    queue: _Named,
    data: Any,
    *,
    tag: str | None = None,
    meta: Any = None,
    delay_ms: int = 0,
    deliver_at: int | None = None,
    unique_key: str | None = None,
    idempotency_key: str | None = None,
) -> Plan[int]:
    """Put one job and return its seq, once it is as durable as the queue is; a queue that is not there is created,
    with the careful defaults of `careful_queue`.

    It is put once, also where an answer is lost. ``unique_key``: while a job with that key lives, its seq is answered
    and nothing is put. Raises Indeterminate where the outcome cannot be known.
    """
    record = Record(
        data=json_text(data),
        tag=tag,
        meta=None if meta is None else _meta(meta),
        delay_ms=delay_ms,
        deliver_at=deliver_at,
        unique_key=unique_key,
    )
    call = records.produce(
        queue.core, queue.name, [record], idempotency_key=idempotency_key, config=careful_queue(queue.name)
    )
    return (yield from call).first_seq


def _meta(meta: Any) -> bytes:
    text = json_text(meta)
    if not text.lstrip().startswith(b"{"):
        raise Invalid("meta must be a JSON object", field="meta")
    return text


def put_many(queue: _Named, items: Iterable[Any], *, idempotency_key: str | None = None) -> Plan[range]:
    """Put jobs, all or none, and return their seqs in order; a `tenure.Record` may carry a tag and a delay."""
    call = records.produce(
        queue.core, queue.name, items, idempotency_key=idempotency_key, config=careful_queue(queue.name)
    )
    return (yield from call).seqs


def _claim(
    queue: _Named, *, node: str | None, max_count: int, lease_ms: int | None, wait_ms: int, auto_ack: bool
) -> Plan[Leased[Any]]:
    whose = queue.core.node_or(node)
    claimed = yield from queues.claim(
        queue.core,
        queue.name,
        node=whose,
        max_count=max_count,
        lease_ms=lease_ms,
        wait_ms=wait_ms,
        auto_ack=auto_ack,
    )
    return Leased(queue.core, claimed, node=whose, type=queue.type)


class Queue(Generic[T]):
    """One queue. ``type`` is what `HeldJob.data` is decoded into: anything that msgspec can decode."""

    def __init__(self, wire: Wire, core: Core, name: str, type: Any = Any) -> None:
        self._wire = wire
        self._core = _Named(core, check_topic_name(name), type)

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._core.name

    put = Blocking(put)
    put_many = Blocking(put_many)

    def claim(
        self,
        *,
        node: str | None = None,
        max_count: int = 1,
        lease_ms: int | None = None,
        wait_ms: int = 0,
        auto_ack: bool = False,
    ) -> Lease[T]:
        """Lease up to ``max_count`` jobs; an empty lease, which is false, where none came within ``wait_ms``."""
        plan = _claim(self._core, node=node, max_count=max_count, lease_ms=lease_ms, wait_ms=wait_ms, auto_ack=auto_ack)
        return Lease(self._wire, drive(self._wire, plan))


class AsyncQueue(Generic[T]):
    """One queue. ``type`` is what `HeldJob.data` is decoded into: anything that msgspec can decode."""

    def __init__(self, wire: AsyncWire, core: Core, name: str, type: Any = Any) -> None:
        self._wire = wire
        self._core = _Named(core, check_topic_name(name), type)

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._core.name

    put = Awaiting(put)
    put_many = Awaiting(put_many)

    async def claim(
        self,
        *,
        node: str | None = None,
        max_count: int = 1,
        lease_ms: int | None = None,
        wait_ms: int = 0,
        auto_ack: bool = False,
    ) -> AsyncLease[T]:
        """Lease up to ``max_count`` jobs; an empty lease, which is false, where none came within ``wait_ms``."""
        plan = _claim(self._core, node=node, max_count=max_count, lease_ms=lease_ms, wait_ms=wait_ms, auto_ack=auto_ack)
        return AsyncLease(self._wire, await drive_async(self._wire, plan))
