"""`Handler`: a function that handles jobs, with its options, its payload decoder and its call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import update_wrapper
from inspect import isawaitable, iscoroutine
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from tenure.errors import Invalid
from tenure.worker.options import TaskOptions
from tenure.worker.payload import Misfit, Shape, decoder_for, encode

if TYPE_CHECKING:
    from tenure.worker.context import Context
    from tenure.worker.runtime.job import HeldJob

__all__ = ["Handler"]

T = TypeVar("T")


class Handler(Generic[T]):
    """A function for payloads of type ``T``, independent of the backend that keeps its jobs."""

    kind: ClassVar[str] = "Handler"

    def __init__(self, handler: Callable[..., Any], shape: Shape, options: TaskOptions) -> None:
        update_wrapper(self, handler)
        self.handler = handler
        self.options = options
        self.payload_type = shape.payload
        self.is_async = shape.is_async
        # A handler without a payload argument ignores the payload: a tick, for example.
        self.decode = decoder_for(shape.payload, of=f"task {options.queue!r}") if shape.arity else _ignore
        self._is_typed = bool(shape.arity) and shape.payload is not Any
        self.invoke = _invoker(handler, shape)
        """Call the handler with as much of ``(payload, ctx)`` as it takes; an awaitable where it is async."""

    @property
    def queue(self) -> str:
        return self.options.queue

    @property
    def name(self) -> str:
        """The name in messages."""
        return self.queue

    @property
    def tasks(self) -> tuple[Handler[Any], ...]:
        """The handlers of the jobs of its queue: itself, unless several tasks share the queue."""
        return (self,)

    def task_of(self, job: HeldJob) -> Handler[Any]:
        """Return the handler of a job."""
        return self

    def encoded(self, payloads: Iterable[Any]) -> list[bytes]:
        """Return payloads as JSON. Raises Invalid where one has no JSON form, and, naming the field, where the handler
        would not take it: the caller can then correct it before it becomes a dead letter.
        """
        return [self._encode(payload, index) for index, payload in enumerate(payloads)]

    def _encode(self, payload: Any, index: int) -> bytes:
        data = encode(payload)
        if self._is_typed:
            try:
                self.decode(data)
            except Misfit as misfit:
                where = {} if misfit.field is None else {"field": misfit.field}
                raise Invalid(f"{self.queue}: {misfit}", item=index, **where) from None
        return data

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.handler(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name!r} {getattr(self.handler, '__qualname__', self.handler)}>"


def _invoker(handler: Callable[..., Any], shape: Shape) -> Callable[[Any, Context], Any]:
    call = handler if shape.is_async else _refuse_awaitable(handler)
    if shape.arity == 2:
        return call
    if shape.arity == 1:
        return lambda payload, ctx: call(payload)
    return lambda payload, ctx: call()


def _refuse_awaitable(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Make a plain function fail where it returns an awaitable: its work was not done, so the job must not be acked."""

    def call(*args: Any) -> Any:
        result = handler(*args)
        if not isawaitable(result):
            return result
        if iscoroutine(result):
            result.close()
        raise TypeError("a plain function returned an awaitable, which nobody awaits: make it an async function")

    return call


def _ignore(data: bytes) -> None:
    return None
