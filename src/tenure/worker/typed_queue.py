"""`TypedQueue`: several tasks on one queue, chosen by the type that a job carries in its meta.

One queue is one stream with one lease and one set of slots for all types. So its tasks share the options of the queue
and of its flow: it is enough that one task sets an option, and two that contradict are refused. The options of a
handler (``retries``, ``backoff``, ``time_limit``, ``policy``, ``run``) stay its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from tenure.contract.names import describe_value
from tenure.errors import Invalid
from tenure.worker.options import TaskKnobs, TaskOptions
from tenure.worker.runtime.handler import Handler

if TYPE_CHECKING:
    from tenure.worker.runtime.job import HeldJob
    from tenure.worker.task import Task

__all__ = ["TYPE_KEY", "TypedQueue", "UnknownType", "type_of"]

TYPE_KEY: Final = "type"
"""The key in a record's meta that holds the type of its job."""
_SHARED: Final = {
    "lease": "lease_ms",
    "concurrency": "concurrency",
    "prefetch": "prefetch",
    "max_in_flight": "max_in_flight",
    "rate": "rate",
    "weight": "weight",
    "push": "push",
    "durability": "durability",
    "max_deliveries": "max_deliveries",
    "dead_letter": "dead_letter",
}
"""The options of a queue and of its flow, by their names in the decorator and in `TaskOptions`."""
TYPES_MAX: Final = 100
_TYPES_SHOWN_MAX: Final = 10


class UnknownType(Exception):
    """No task of the queue handles jobs of this type; a newer worker may."""


class TypedQueue(Handler[Any]):
    """The tasks of one queue, by type; None is the type of a job that carries none.

    Raises Invalid where two tasks have one type or contradict each other; the tasks are then unchanged.
    """

    kind = "TypedQueue"

    def __init__(self, tasks: Sequence[Task[Any]]) -> None:
        if len(tasks) > TYPES_MAX:
            raise Invalid(f"a queue has at most {TYPES_MAX} types of jobs", field="type")
        self._by_type: dict[str | None, Task[Any]] = {}
        for task in tasks:
            if task.type in self._by_type:
                raise _duplicate(self._by_type[task.type])
            self._by_type[task.type] = task
        agreed = _share_options(tasks)
        for task, options in zip(tasks, agreed, strict=True):
            task.options = options
        most = max(agreed, key=lambda options: options.retries)
        explicit = frozenset().union(*(options.explicit for options in agreed))
        self.options = msgspec.structs.replace(most, explicit=explicit)

    @property
    def tasks(self) -> tuple[Handler[Any], ...]:
        return tuple(self._by_type.values())

    def task_of(self, job: HeldJob) -> Handler[Any]:
        """Return the task of a job. Raises UnknownType, naming the types that there are."""
        type = type_of(job.meta)
        found = self._by_type.get(type) if type is None or isinstance(type, str) else None
        if found is None:
            raise UnknownType(f"{_describe(type)}; {self.queue} has tasks for {self._known()}")
        return found

    def _known(self) -> str:
        names = sorted(describe_value(name) for name in self._by_type if name is not None)
        names += ["jobs without a type"] if None in self._by_type else []
        more = len(names) - _TYPES_SHOWN_MAX
        return ", ".join(names[:_TYPES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")

    def __repr__(self) -> str:
        return f"<TypedQueue {self.queue!r} of {self._known()}>"


def type_of(meta: bytes | None) -> object:
    """Return the type in the meta of a job, None where there is none; a value that is not a text is
    returned as it is.
    """
    if meta is None:
        return None
    try:
        return _decode(meta).type
    except msgspec.DecodeError:
        return None


class _Meta(msgspec.Struct):
    type: Any = None


_decode: Final = msgspec.json.Decoder(_Meta).decode


def _describe(type: object) -> str:
    return "the job carries no type" if type is None else f"no task handles the type {describe_value(type)}"


def _duplicate(task: Task[Any]) -> Invalid:
    if task.type is None:
        hint = 'several tasks share a queue by their types: type="welcome"'
        return Invalid(f"queue {task.queue!r} has a task already: {task!r}; {hint}", field="queue")
    return Invalid(f"queue {task.queue!r} has a task for the type {task.type!r} already: {task!r}", field="type")


def _share_options(tasks: Sequence[Task[Any]]) -> list[TaskOptions]:
    """Return the options of each task, with shared options taken from the task that sets them. Raises Invalid."""
    shared: dict[str, Any] = {}
    setters: dict[str, Task[Any]] = {}
    for task in tasks:
        for knob in _SHARED.keys() & task.knobs.keys():
            first = setters.setdefault(knob, task)
            if _value(first, knob) != _value(task, knob):
                raise Invalid(
                    f"the tasks of {task.queue!r} share its {knob}: {first!r} says {_value(first, knob)!r} and "
                    f"{task!r} says {_value(task, knob)!r}; say it once, or the same",
                    field=knob,
                )
            shared[knob] = task.knobs[knob]  # type: ignore[literal-required]
    checked = [
        TaskOptions.of(task.queue, cast("TaskKnobs", {**task.knobs, **shared}), is_async=task.is_async)
        for task in tasks
    ]
    # Defaults depend on how a handler runs and how often it is retried: take the smallest concurrency and the largest
    # max_deliveries.
    least = min(checked, key=lambda options: options.concurrency)
    return [
        msgspec.structs.replace(
            options,
            concurrency=least.concurrency,
            prefetch=least.prefetch,
            max_deliveries=_deliveries(checked),
        )
        for options in checked
    ]


def _deliveries(checked: Sequence[TaskOptions]) -> int:
    """Return the largest ``max_deliveries``; 0, which a task has to set explicitly, is unlimited."""
    counts = [options.max_deliveries for options in checked]
    return 0 if 0 in counts else max(counts)


def _value(task: Task[Any], knob: str) -> object:
    """Return an option as checked for this task alone, so that "30s" and 30_000 are equal."""
    alone = TaskOptions.of(task.queue, task.knobs, is_async=task.is_async)
    return getattr(alone, _SHARED[knob])
