"""`Queue` and `AsyncQueue`: one queue by name, with values instead of JSON."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, overload

from tenure.client.calls import queues, records, topics
from tenure.client.config import PatchFields, careful_queue
from tenure.client.lease.lease import AsyncLease, Lease
from tenure.client.lease.plans import Leased
from tenure.client.plan.drive import drive, drive_async
from tenure.client.plan.encode import json_text
from tenure.client.plan.handle import Call, Handle, Method
from tenure.client.plan.session import Session
from tenure.client.plan.steps import Plan
from tenure.client.transport.wire import AsyncWire, Wire
from tenure.contract.names import check_topic_name
from tenure.contract.records import Record
from tenure.contract.replies import PutTopic
from tenure.errors import Invalid

__all__ = ["AsyncQueue", "Named", "Queue"]

T = TypeVar("T")
W = TypeVar("W", bound=Wire | AsyncWire)
P = ParamSpec("P")


class Named(Generic[T]):
    """The context of a queue handle: its session, its name and its type. Raises Invalid for a bad name."""

    def __init__(self, session: Session, name: str, type: Any) -> None:
        self.session = session
        self.name = check_topic_name(name)
        self.type = type


def put(
    queue: Named[Any],
    data: Any,
    *,
    tag: str | None = None,
    meta: Any = None,
    delay_ms: int | None = None,
    deliver_at: int | None = None,
    unique_key: str | None = None,
    idempotency_key: str | None = None,
) -> Plan[int]:
    """Put one job and return its seq, once it is as durable as the queue is; a queue that is not there is created,
    with the careful defaults of `careful_queue`.

    It is put once, also where an answer is lost. While a job with ``unique_key`` lives, its seq is returned and nothing
    is put. Raises Indeterminate where the outcome cannot be known.
    """
    record = Record(
        data=json_text(data),
        tag=tag,
        meta=None if meta is None else _meta(meta),
        delay_ms=delay_ms or 0,
        deliver_at=deliver_at,
        unique_key=unique_key,
    )
    call = records.produce(
        queue.session, queue.name, [record], idempotency_key=idempotency_key, config=careful_queue(queue.name)
    )
    return (yield from call).first_seq


def _meta(meta: Any) -> bytes:
    text = json_text(meta)
    if not text.lstrip().startswith(b"{"):
        raise Invalid("meta must be a JSON object", field="meta")
    return text


def put_many(queue: Named[Any], items: Iterable[Any], *, idempotency_key: str | None = None) -> Plan[range]:
    """Put jobs, all or none, and return their seqs in order; a `tenure.Record` may carry a tag and a delay."""
    call = records.produce(
        queue.session, queue.name, items, idempotency_key=idempotency_key, config=careful_queue(queue.name)
    )
    return (yield from call).seqs


def configure(queue: Named[Any], /, **config: Unpack[PatchFields]) -> Plan[PutTopic]:
    """Change the named fields of the queue's config and leave the others; None returns a field to its default.

    Raises Invalid before anything is sent for a bad value, NotFound where the queue is not there.
    """
    return (yield from topics.patch_topic(queue.session, queue.name, **config))


def claim(
    queue: Named[T],
    *,
    node: str | None = None,
    max_count: int = 1,
    lease_ms: int | None = None,
    wait_ms: int = 0,
    auto_ack: bool = False,
) -> Plan[Leased[T]]:
    """Lease up to ``max_count`` jobs; an empty lease, which is false, where none came within ``wait_ms``."""
    holder = queue.session.node_or(node)
    claimed = yield from queues.claim(
        queue.session,
        queue.name,
        node=holder,
        max_count=max_count,
        lease_ms=lease_ms,
        wait_ms=wait_ms,
        auto_ack=auto_ack,
    )
    return Leased(queue.session, claimed, node=holder, type=queue.type)


class _Leasing(Method, Generic[P]):
    """A method that returns a lease on jobs of the queue's own type."""

    if TYPE_CHECKING:

        def __init__(self, plan_function: Callable[Concatenate[Named[Any], P], Plan[Leased[Any]]]) -> None: ...

        @overload
        def __get__(
            self, instance: None, owner: type[Handle[Wire, Named[T]]]
        ) -> Callable[Concatenate[Handle[Wire, Named[T]], P], Lease[T]]: ...
        @overload
        def __get__(
            self, instance: None, owner: type[Handle[AsyncWire, Named[T]]]
        ) -> Callable[Concatenate[Handle[AsyncWire, Named[T]], P], Coroutine[Any, Any, AsyncLease[T]]]: ...
        @overload
        def __get__(self, instance: Handle[Wire, Named[T]], owner: type) -> Callable[P, Lease[T]]: ...
        @overload
        def __get__(
            self, instance: Handle[AsyncWire, Named[T]], owner: type
        ) -> Callable[P, Coroutine[Any, Any, AsyncLease[T]]]: ...
        def __get__(self, instance: Any, owner: type) -> Any: ...

    def return_type(self, plan_type: str, *, awaits: bool) -> str:
        return "AsyncLease[T]" if awaits else "Lease[T]"

    def blocking_method(self) -> Callable[..., Any]:
        plan = self.plan_function

        def method(self: Handle[Wire, Any], **options: Any) -> Any:
            return Lease(self._wire, drive(self._wire, plan(self._context, **options)))

        return method

    def async_method(self) -> Callable[..., Any]:
        plan = self.plan_function

        async def method(self: Handle[AsyncWire, Any], **options: Any) -> Any:
            return AsyncLease(self._wire, await drive_async(self._wire, plan(self._context, **options)))

        return method


class _Queue(Handle[W, Named[T]], Generic[W, T]):
    """The methods of both kinds of queue."""

    put = Call(put)
    put_many = Call(put_many)
    claim = _Leasing(claim)
    configure = Call(configure)

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._context.name

    def __repr__(self) -> str:
        kind = getattr(self._context.type, "__name__", self._context.type)
        return f"<{type(self).__name__} {self.name!r} of {kind}>"


class Queue(_Queue[Wire, T], awaits=False):
    """One queue. Its type is what `HeldJob.data` is decoded into: anything that msgspec can decode."""


class AsyncQueue(_Queue[AsyncWire, T], awaits=True):
    """One queue. Its type is what `HeldJob.data` is decoded into: anything that msgspec can decode.

    >>> import asyncio
    >>> from tenure import AsyncClient
    >>> from tenure.testing import AppWire, memory_broker
    >>> async def main():
    ...     async with memory_broker() as broker, AsyncClient(wire=AppWire(broker)) as client:
    ...         mail = client.queue("mail", str)
    ...         await mail.put("hello")
    ...         async with await mail.claim() as lease:
    ...             return [job.data for job in lease]
    >>> asyncio.run(main())
    ['hello']
    """
