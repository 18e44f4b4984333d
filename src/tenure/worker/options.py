"""The options of a task: their types, their defaults, and the checks when the task is declared."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Final, Literal, TypedDict, TypeVar

import msgspec

from tenure.client.config import DELIVERIES_MAX, ConfigFields
from tenure.contract.config import LEASE_MS_MAX, LEASE_MS_MIN
from tenure.contract.names import check_topic_name, describe_value
from tenure.contract.values import check_within
from tenure.durations import Duration, Rate, ms_of, rate_of
from tenure.errors import Invalid
from tenure.worker.backoff import BackoffRule, Exponential, Fixed
from tenure.worker.foreign_names import TASK_HINTS, unknown_options
from tenure.worker.verdict import AckPolicy

__all__ = ["HELD_MAX", "Durability", "Knobs", "Place", "Run", "TaskKnobs", "TaskOptions"]

Run = Literal["auto", "loop", "thread", "process"]
Place = Literal["loop", "thread", "process"]
Durability = Literal["memory", "disk", "fsync", "replicated"]

HELD_MAX: Final = 1_000
"""Jobs that one task may hold, running and prefetched: the most that one claim returns."""
RETRIES_MAX: Final = 1_000_000
WEIGHT_MAX: Final = 1_000
_LOOP_CONCURRENCY: Final = 100
_THREAD_CONCURRENCY: Final = 10
_UNSET: Final = object()
_PLACES: Final[tuple[Place, ...]] = ("loop", "thread", "process")
_DURABILITIES: Final[tuple[Durability, ...]] = ("memory", "disk", "fsync", "replicated")

_L = TypeVar("_L", bound=str)


class Knobs(TypedDict, total=False):
    """The options of ``@app.timer(topic, …)`` and of every task. Durations are ``"30s"``, a timedelta or
    milliseconds.
    """

    retries: int
    backoff: BackoffRule | Duration
    lease: Duration
    concurrency: int
    prefetch: int
    max_in_flight: int
    rate: str
    time_limit: Duration | None
    policy: AckPolicy
    weight: int
    run: Run
    max_deliveries: int | None


class TaskKnobs(Knobs, total=False):
    """The options of ``@app.task(queue, …)``, which add those of its queue."""

    dead_letter: str | None
    durability: Durability
    push: bool


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The checked options of one task, in milliseconds. ``explicit`` names those that the decorator was given."""

    queue: str
    retries: int = 3
    backoff: BackoffRule = Exponential()
    lease_ms: int = 30_000
    concurrency: int = _LOOP_CONCURRENCY
    prefetch: int = _LOOP_CONCURRENCY
    rate: Rate | None = None
    time_limit_ms: int | None = None
    policy: AckPolicy = AckPolicy.NACK_ON_ERROR
    weight: int = 1
    run: Place = "loop"
    max_deliveries: int = DELIVERIES_MAX
    dead_letter: str | None = None
    durability: Durability = "fsync"
    push: bool = True
    explicit: frozenset[str] = frozenset()

    @classmethod
    def of(cls, queue: str, knobs: TaskKnobs, *, is_async: bool) -> TaskOptions:
        """Check the options of a handler for ``queue``. Raises Invalid, naming the option."""
        unknown = set(knobs) - set(TaskKnobs.__annotations__)
        if unknown:
            raise unknown_options(unknown, of="a task", known=TaskKnobs.__annotations__, hints=TASK_HINTS)
        queue = check_topic_name(queue)
        run = _run(knobs.get("run", "auto"), is_async=is_async)
        retries = check_within(knobs.get("retries", 3), "retries", least=0, most=RETRIES_MAX)
        concurrency, prefetch = _concurrency_and_prefetch(knobs, run)
        time_limit = knobs.get("time_limit")
        return cls(
            queue=queue,
            retries=retries,
            backoff=_backoff(knobs.get("backoff", Exponential())),
            lease_ms=ms_of(knobs.get("lease", 30_000), field="lease", min_ms=LEASE_MS_MIN, max_ms=LEASE_MS_MAX),
            concurrency=concurrency,
            prefetch=prefetch,
            rate=rate_of(knobs["rate"]) if "rate" in knobs else None,
            time_limit_ms=None if time_limit is None else ms_of(time_limit, field="time_limit", min_ms=1),
            policy=_policy(knobs.get("policy", AckPolicy.NACK_ON_ERROR)),
            weight=check_within(knobs.get("weight", 1), "weight", least=1, most=WEIGHT_MAX),
            run=run,
            max_deliveries=_deliveries(knobs.get("max_deliveries"), retries),
            dead_letter=_dead_letter(knobs.get("dead_letter", _UNSET), queue),
            durability=_choice(knobs.get("durability", "fsync"), "durability", _DURABILITIES),
            push=knobs.get("push", True),
            explicit=frozenset(knobs),
        )

    @property
    def max_in_flight(self) -> int:
        """How many jobs a worker process holds at once, running and prefetched."""
        return self.concurrency + self.prefetch

    def queue_config(self) -> ConfigFields:
        """Return the config that the task's queue is created with."""
        return {
            "type": "queue",
            "durability": self.durability,
            "lease_ms": self.lease_ms,
            "max_deliveries": self.max_deliveries,
            "dead_letter": self.dead_letter,
        }


def _run(run: str, *, is_async: bool) -> Place:
    """Return where a handler runs. Raises Invalid for a plain function on the loop and an async one in a thread."""
    if run == "auto":
        return "loop" if is_async else "thread"
    where: Place = _choice(run, "run", _PLACES)
    if where == "loop" and not is_async:
        raise Invalid('run="loop" needs an async function: a blocking one would stop every other job', field="run")
    if where == "thread" and is_async:
        raise Invalid('run="thread" needs a plain function: an async one runs on the loop', field="run")
    return where


def _concurrency_and_prefetch(knobs: TaskKnobs, run: Place) -> tuple[int, int]:
    """Return how many jobs run at once, and how many more are held; ``max_in_flight`` is their sum."""
    held_max = knobs.get("max_in_flight")
    default = default_concurrency(run)
    if held_max is None:
        concurrency = check_within(knobs.get("concurrency", default), "concurrency", least=1, most=HELD_MAX)
        spare = HELD_MAX - concurrency
        return concurrency, check_within(
            knobs.get("prefetch", min(concurrency, spare)), "prefetch", least=0, most=spare
        )
    if "prefetch" in knobs:
        raise Invalid("max_in_flight is concurrency plus prefetch: give one of the two", field="max_in_flight")
    check_within(held_max, "max_in_flight", least=1, most=HELD_MAX)
    concurrency = check_within(knobs.get("concurrency", min(default, held_max)), "concurrency", least=1, most=held_max)
    return concurrency, held_max - concurrency


def default_concurrency(run: Place) -> int:
    """Return how many jobs run at once by default."""
    if run == "process":
        return os.cpu_count() or 1
    return _LOOP_CONCURRENCY if run == "loop" else _THREAD_CONCURRENCY


def _choice(value: object, field: str, options: tuple[_L, ...]) -> _L:
    for option in options:
        if value == option:
            return option
    raise Invalid(f"{field} must be one of {', '.join(map(repr, options))}; got {describe_value(value)}", field=field)


def _backoff(value: object) -> BackoffRule:
    """Return a rule as it is, and a duration as `Fixed`."""
    if callable(getattr(value, "delay_ms", None)):
        return value  # type: ignore[return-value]
    if isinstance(value, str | int | timedelta) and not isinstance(value, bool):
        return Fixed(value)
    raise Invalid(
        f"backoff must be a duration, Exponential(…), Fixed(…) or have a delay_ms; got {describe_value(value)}",
        field="backoff",
    )


def _policy(value: object) -> AckPolicy:
    if isinstance(value, AckPolicy):
        return value
    raise Invalid(f"policy must be an AckPolicy; got {describe_value(value)}", field="policy")


def _deliveries(value: int | None, retries: int) -> int:
    """Return ``max_deliveries``, by default two above the retries, so that a crash does not use up a retry."""
    if value is None:
        return max(DELIVERIES_MAX, retries + 2)
    return check_within(value, "max_deliveries", least=0, most=RETRIES_MAX)


def _dead_letter(value: object, queue: str) -> str | None:
    if value is None:
        return None
    name = f"{queue}.dead" if value is _UNSET else value
    if name == queue:
        raise Invalid("dead_letter must be another topic than the queue itself", field="dead_letter")
    return check_topic_name(name)
