"""`Task`: a decorated function. Calling it calls the function; ``put`` sends the call to a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack, overload

from tenure.contract.names import check_key
from tenure.durations import Duration, ms_of
from tenure.errors import Invalid
from tenure.worker.foreign_names import PUT_HINTS, check_one_payload, no_attribute, unknown_options
from tenure.worker.middleware import Outgoing, Put
from tenure.worker.options import TaskKnobs, TaskOptions
from tenure.worker.payload import shape_of
from tenure.worker.runtime.handler import Handler
from tenure.worker.typed_queue import TYPE_KEY

if TYPE_CHECKING:
    from tenure.worker.app import App

__all__ = ["BlockingPuts", "PutManyOptions", "PutOptions", "Task", "TaskOf", "when_of"]

T = TypeVar("T")
R = TypeVar("R")
A = ParamSpec("A")


class PutManyOptions(TypedDict, total=False):
    """The options of a put: delivery not before ``delay`` has passed or ``at`` has come, a ``tag`` and ``meta``;
    ``idempotency_key`` makes the same put, sent again within the server's window, return the same seqs.
    """

    delay: Duration | None
    at: datetime | None
    tag: str | None
    meta: dict[str, Any] | None
    idempotency_key: str | None


class PutOptions(PutManyOptions, total=False):
    """As for many, and ``unique``: while a job with this key is in the queue, another put returns that job's seq."""

    unique: str | None


class Task(Handler[T]):
    """A function that handles the jobs of one queue, or those of one ``type`` in it, with a payload of type ``T``.

    >>> import asyncio
    >>> from tenure import App
    >>> from tenure.testing import AppTester
    >>> app = App()
    >>> @app.task("sums", retries=3)
    ... async def add(numbers: list[int]) -> None: ...
    >>> async def main():
    ...     async with AppTester(app):
    ...         return await add.put_many([[1, 2], [3, 4]])
    >>> asyncio.run(main())
    [1, 2]
    """

    kind = "Task"

    def __init__(
        self,
        app: App,
        queue: str,
        handler: Callable[..., Any],
        knobs: TaskKnobs,
        *,
        type: str | None = None,
        names: dict[str, Any] | None = None,
    ) -> None:
        shape = shape_of(handler, names)
        self.type = None if type is None else check_key(type, field="type")
        self.knobs = knobs
        super().__init__(handler, shape, TaskOptions.of(queue, knobs, is_async=shape.is_async))
        self.app = app

    @property
    def name(self) -> str:
        """The queue, and the type in brackets where the task has one: no two tasks of an app have one name."""
        return self.queue if self.type is None else f"{self.queue}[{self.type}]"

    @property
    def blocking(self) -> BlockingPuts[T]:
        """``put`` and ``put_many`` for code without an event loop."""
        return BlockingPuts(self)

    @overload
    async def put(self: Task[None], data: None = None, **how: Unpack[PutOptions]) -> int: ...

    @overload
    async def put(self, data: T, **how: Unpack[PutOptions]) -> int: ...

    async def put(self, data: Any = None, *more: Any, **how: Unpack[PutOptions]) -> int:
        """Put one job and return its seq once it is durable. A missing queue is created as declared.

        Raises Invalid where the handler does not take the payload, Indeterminate where it is unknown whether the job
        was stored, and the errors of the broker.
        """
        check_one_payload(more)
        return (await self.app.send(self._put([data], how)))[0]

    async def put_many(self, items: Iterable[T], **how: Unpack[PutManyOptions]) -> list[int]:
        """Put jobs in one append, all or none, and return their seqs. The options apply to each of them."""
        put = self._put_many(items, how)
        return await self.app.send(put) if put.records else []

    def _put_many(self, items: Iterable[Any], how: PutManyOptions) -> Put:
        if how.get("unique") is not None:
            raise Invalid("jobs with a unique key are put one at a time: put(…, unique=…)", field="unique")
        return self._put(items, how)

    def _put(self, items: Iterable[Any], how: PutOptions | PutManyOptions) -> Put:
        unknown = set(how) - PutOptions.__optional_keys__
        if unknown:
            raise unknown_options(unknown, of="a put", known=PutOptions.__optional_keys__, hints=PUT_HINTS)
        fields = _fields(how) | {"meta": self._meta(how.get("meta"))}
        records = [Outgoing(data=data, **fields) for data in self.encoded(items)]
        return Put(task=self, queue=self.queue, records=records, idempotency_key=how.get("idempotency_key"))

    def _meta(self, given: dict[str, Any] | None) -> dict[str, Any] | None:
        """Return the meta of a job, with its type in it. Raises Invalid where the caller gives another type."""
        if self.type is None:
            return given
        meta = {**(given or {}), TYPE_KEY: self.type}
        if given is not None and given.get(TYPE_KEY, self.type) != self.type:
            raise Invalid(f"meta[{TYPE_KEY!r}] is the type of the job, {self.type!r}: leave it out", field="meta")
        return meta

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError with a hint for names of other task queues; hidden from type checkers, which report
            it.
            """
            no_attribute(name)


class TaskOf(Task[T], Generic[T, A, R]):
    """A Task whose call is typed; the result of ``@app.task``."""

    if TYPE_CHECKING:

        def __call__(self, *args: A.args, **kwargs: A.kwargs) -> R: ...


class BlockingPuts(Generic[T]):
    """The puts of a task through a blocking client, which the app opens on first use."""

    def __init__(self, task: Task[T]) -> None:
        self._task = task

    @overload
    def put(self: BlockingPuts[None], data: None = None, **how: Unpack[PutOptions]) -> int: ...

    @overload
    def put(self, data: T, **how: Unpack[PutOptions]) -> int: ...

    def put(self, data: Any = None, *more: Any, **how: Unpack[PutOptions]) -> int:
        """As `Task.put`; blocks."""
        check_one_payload(more)
        return self._task.app.send_blocking(self._task._put([data], how))[0]

    def put_many(self, items: Iterable[T], **how: Unpack[PutManyOptions]) -> list[int]:
        """As `Task.put_many`; blocks."""
        put = self._task._put_many(items, how)
        return self._task.app.send_blocking(put) if put.records else []


def _fields(how: PutOptions | PutManyOptions) -> dict[str, Any]:
    return {
        "tag": how.get("tag"),
        "unique_key": how.get("unique"),
        **when_of(how.get("delay"), how.get("at")),
    }


def when_of(delay: Duration | None, at: datetime | None) -> dict[str, int | None]:
    """Return ``delay_ms`` and ``deliver_at`` of a record. Raises Invalid where both are given, or one is not valid."""
    if delay is not None and at is not None:
        raise Invalid("give a delay or a time, not both", field="at")
    return {
        "delay_ms": 0 if delay is None else ms_of(delay, field="delay"),
        "deliver_at": None if at is None else _wall_ms_of(at),
    }


def _wall_ms_of(at: datetime) -> int:
    """Return a time in milliseconds since the epoch. Raises Invalid where it has no time zone."""
    if at.tzinfo is None:
        raise Invalid("at must say its time zone: datetime(…, tzinfo=UTC)", field="at")
    return max(0, int(at.timestamp() * 1000))
