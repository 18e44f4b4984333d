"""`TimerTask`: a decorated function for the timers of a topic. Calling it calls the function; ``schedule`` sends the
call to a worker, at its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypedDict, TypeVar, Unpack, cast, overload

from tenure.durations import Duration
from tenure.worker.foreign_names import PUT_HINTS, TASK_HINTS, unknown_options
from tenure.worker.middleware import Outgoing, Put
from tenure.worker.options import Knobs, TaskKnobs, TaskOptions
from tenure.worker.payload import shape_of
from tenure.worker.runtime.handler import Handler
from tenure.worker.task import when_of

if TYPE_CHECKING:
    from tenure.timers.model import Cancelled, Scheduled
    from tenure.worker.app import App

__all__ = ["BlockingTimers", "ScheduleManyOptions", "ScheduleOptions", "TimerOf", "TimerTask"]

T = TypeVar("T")
R = TypeVar("R")
A = ParamSpec("A")


class ScheduleManyOptions(TypedDict, total=False):
    """The options of a schedule: due after ``delay`` or at ``at``, by default now; with ``meta`` for middlewares."""

    delay: Duration | None
    at: datetime | None
    meta: dict[str, Any] | None


class ScheduleOptions(ScheduleManyOptions, total=False):
    """As for many, and the id; ``on_conflict`` sets what happens to one that waits or runs already."""

    timer_id: str
    on_conflict: Literal["replace", "keep", "error"]


class TimerTask(Handler[T]):
    """A function that handles the timers of one topic, with a payload of type ``T``.

    >>> import asyncio
    >>> from tenure import App
    >>> from tenure.testing import AppTester
    >>> app = App()
    >>> @app.timer("reminders")
    ... async def remind(to: str) -> None:
    ...     print("remind", to)
    >>> async def main():
    ...     async with AppTester(app) as tester:
    ...         await remind.schedule("ann", delay="1h")
    ...         tester.advance("1h")
    ...         return await tester.run_until_idle()
    >>> asyncio.run(main())
    remind ann
    1
    """

    kind = "Timer"

    def __init__(
        self,
        app: App,
        topic: str,
        handler: Callable[..., Any],
        knobs: Knobs,
        *,
        names: dict[str, Any] | None = None,
    ) -> None:
        unknown = set(knobs) - set(Knobs.__annotations__)
        if unknown:
            raise unknown_options(unknown, of="a timer", known=Knobs.__annotations__, hints=TASK_HINTS)
        shape = shape_of(handler, names)
        super().__init__(handler, shape, TaskOptions.of(topic, cast("TaskKnobs", knobs), is_async=shape.is_async))
        self.app = app

    @property
    def blocking(self) -> BlockingTimers[T]:
        """The same calls for code without an event loop."""
        return BlockingTimers(self)

    @overload
    async def schedule(self: TimerTask[None], data: None = None, **how: Unpack[ScheduleOptions]) -> Scheduled: ...

    @overload
    async def schedule(self, data: T, **how: Unpack[ScheduleOptions]) -> Scheduled: ...

    async def schedule(self, data: Any = None, **how: Unpack[ScheduleOptions]) -> Scheduled:
        """Schedule one timer; returns its id, its version and when it is due.

        An id that waits or runs already is replaced, kept, or refused with Conflict, by ``on_conflict``. Raises what
        `Timers.schedule` raises.
        """
        return (await self.app.schedule(self._put([data], how), how.get("on_conflict", "replace")))[0]

    async def schedule_many(self, items: Iterable[T], **how: Unpack[ScheduleManyOptions]) -> list[Scheduled]:
        """Schedule a timer for each item, with an id of its own. The options apply to each of them."""
        return await self.app.schedule(self._put(items, how), "replace")

    async def cancel(self, timer_id: str) -> Cancelled:
        """Remove a timer that waits; one that a worker holds is ``in_flight`` and left alone."""
        return await self.app.timers.cancel(self.queue, timer_id)

    def _put(self, items: Iterable[Any], how: ScheduleOptions | ScheduleManyOptions) -> Put:
        unknown = set(how) - ScheduleOptions.__optional_keys__
        if unknown:
            raise unknown_options(unknown, of="a schedule", known=ScheduleOptions.__optional_keys__, hints=PUT_HINTS)
        fields: dict[str, Any] = {
            "meta": how.get("meta"),
            **when_of(how.get("delay"), how.get("at")),
            "timer_id": how.get("timer_id"),
        }
        return Put(task=self, queue=self.queue, records=[Outgoing(data=data, **fields) for data in self.encoded(items)])


class TimerOf(TimerTask[T], Generic[T, A, R]):
    """A TimerTask whose call is typed; the result of ``@app.timer``."""

    if TYPE_CHECKING:

        def __call__(self, *args: A.args, **kwargs: A.kwargs) -> R: ...


class BlockingTimers(Generic[T]):
    """The calls of a timer for code without a loop: run on the app's loop where that runs in another thread, or else on
    a loop in a thread of their own.
    """

    def __init__(self, task: TimerTask[T]) -> None:
        self._task = task

    @overload
    def schedule(self: BlockingTimers[None], data: None = None, **how: Unpack[ScheduleOptions]) -> Scheduled: ...

    @overload
    def schedule(self, data: T, **how: Unpack[ScheduleOptions]) -> Scheduled: ...

    def schedule(self, data: Any = None, **how: Unpack[ScheduleOptions]) -> Scheduled:
        """As `TimerTask.schedule`; blocks."""
        put = self._task._put([data], how)
        return self._task.app.schedule_blocking(put, how.get("on_conflict", "replace"))[0]

    def schedule_many(self, items: Iterable[T], **how: Unpack[ScheduleManyOptions]) -> list[Scheduled]:
        """As `TimerTask.schedule_many`; blocks."""
        return self._task.app.schedule_blocking(self._task._put(items, how), "replace")

    def cancel(self, timer_id: str) -> Cancelled:
        """As `TimerTask.cancel`; blocks."""
        return self._task.app.cancel_blocking(self._task.queue, timer_id)
