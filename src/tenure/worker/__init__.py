"""The worker runtime: everything between a decorated function and the broker. See docs/design/worker.md.

`tenure` exports the names that an app is written with; this package adds the types of options, middlewares and
verdicts.
"""

from __future__ import annotations

from tenure.durations import Duration, Rate
from tenure.endpoint import Endpoint
from tenure.worker.app import App, TaskDecorator, TimerDecorator
from tenure.worker.backoff import BackoffRule, Exponential, Fixed
from tenure.worker.context import BlockingContext, Context
from tenure.worker.cron import Schedule
from tenure.worker.hooks import Hook, Hooks
from tenure.worker.middleware import CallNext, Middleware, Outgoing, Put, PutNext
from tenure.worker.options import Knobs, TaskKnobs, TaskOptions
from tenure.worker.periodic import Periodic, Tick
from tenure.worker.runtime.handler import Handler
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.timing import Timing
from tenure.worker.settings import WorkerSettings
from tenure.worker.task import BlockingPuts, PutManyOptions, PutOptions, Task, TaskOf
from tenure.worker.timer import BlockingTimers, ScheduleManyOptions, ScheduleOptions, TimerOf, TimerTask
from tenure.worker.verdict import Ack, AckPolicy, Nack, Reject, Verdict, VerdictKind

__all__ = [
    "Ack",
    "AckPolicy",
    "App",
    "BackoffRule",
    "BlockingContext",
    "BlockingPuts",
    "BlockingTimers",
    "CallNext",
    "Context",
    "Duration",
    "Endpoint",
    "Exponential",
    "Fixed",
    "Handler",
    "HeldJob",
    "Hook",
    "Hooks",
    "Knobs",
    "Middleware",
    "Nack",
    "Outgoing",
    "Periodic",
    "Put",
    "PutManyOptions",
    "PutNext",
    "PutOptions",
    "Rate",
    "Reject",
    "Schedule",
    "ScheduleManyOptions",
    "ScheduleOptions",
    "Task",
    "TaskDecorator",
    "TaskKnobs",
    "TaskOf",
    "TaskOptions",
    "Tick",
    "TimerDecorator",
    "TimerOf",
    "TimerTask",
    "Timing",
    "Verdict",
    "VerdictKind",
    "WorkerSettings",
]
