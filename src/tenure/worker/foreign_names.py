"""Hints in errors for names of other task queues (Celery, dramatiq, RQ): the option or call to use here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Final, NoReturn

from tenure.errors import Invalid

__all__ = ["PUT_HINTS", "TASK_HINTS", "check_named", "check_one_payload", "no_attribute", "unknown_options"]

_ON_PUT: Final = "it belongs to a put: "
_DELAY: Final = 'delay="10m"'
_AT: Final = "at=datetime(…, tzinfo=UTC)"
_PRIORITY: Final = "give urgent work a queue of its own, and its task a weight="
_PAYLOAD: Final = "give one payload: a Struct, a dataclass, a dict"

TASK_HINTS: Final[Mapping[str, str]] = {
    "max_retries": "retries= counts failures, max_deliveries= every delivery",
    "retry": "retries= says how often; to retry by hand, raise Nack(delay=…)",
    "autoretry_for": "every exception is retried, by retries=; raise Reject(…) for what cannot succeed",
    "retry_backoff": 'backoff=Exponential("1s", "10m")',
    "retry_backoff_max": 'backoff=Exponential("1s", "10m")',
    "default_retry_delay": 'backoff=Fixed("30s")',
    "countdown": _ON_PUT + _DELAY,
    "eta": _ON_PUT + _AT,
    "delay": _ON_PUT + _DELAY,
    "acks_late": "it is the default; acks_late=False is policy=AckPolicy.ACK_FIRST",
    "rate_limit": 'rate="100/s"',
    "soft_time_limit": 'time_limit="1m"',
    "timeout": 'time_limit="1m"',
    "visibility_timeout": 'lease="30s", renewed while the handler runs',
    "bind": "take the context as a second argument: def send(job, ctx)",
    "name": 'the first argument names the queue, and type="welcome" a task within it',
    "queue": "the first argument names the queue",
    "priority": _PRIORITY,
    "ignore_result": "there are no results: leave it out",
}
PUT_HINTS: Final[Mapping[str, str]] = {
    "countdown": _DELAY,
    "eta": _AT,
    "delay_ms": _DELAY,
    "deliver_at": _AT,
    "unique_key": "unique=",
    "task_id": "unique=, while the job lives; idempotency_key=, for a repeated put",
    "args": _PAYLOAD,
    "kwargs": _PAYLOAD,
    "queue": "the task names it",
    "priority": _PRIORITY,
    "retry": "retries= of the task",
    "max_retries": "retries= of the task",
}
_CALLS: Final[Mapping[str, str]] = {
    "delay": "put(payload), or blocking.put(payload) without a loop",
    "apply_async": f"put(payload, {_DELAY}), or blocking.put(…) without a loop",
    "send": "put(payload), or blocking.put(payload) without a loop",
    "enqueue": "put(payload), or blocking.put(payload) without a loop",
    "retry": "raise Nack(delay=…) in the handler",
    "s": "put(…) in the handler that comes before",
    "si": "put(…) in the handler that comes before",
    "signature": "put(…) in the handler that comes before",
    "map": "put_many(payloads)",
    "starmap": "put_many(payloads)",
    "AsyncResult": "there are no results: a handler writes its own, or puts a job",
}


def unknown_options(unknown: Collection[str], *, of: str, known: Collection[str], hints: Mapping[str, str]) -> Invalid:
    """Return the error for options that ``of`` does not have, with a hint for each."""
    named = [name + _hint(name, known, hints) for name in sorted(unknown)]
    return Invalid(f"unknown option of {of}: {', '.join(named)}", field=min(unknown))


def _hint(name: str, known: Collection[str], hints: Mapping[str, str]) -> str:
    if name in hints:
        return f" ({hints[name]})"
    close = get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]}=?)" if close else ""


def check_named(name: object, decorator: str) -> None:
    """Raise Invalid where a decorator was used without parentheses, so that it got the function as its name."""
    if isinstance(name, Callable):  # type: ignore[arg-type]
        suggested = getattr(name, "__name__", "emails")
        raise Invalid(f'{decorator} needs a name in parentheses: {decorator}("{suggested}")', field="queue")


def check_one_payload(more: tuple[object, ...]) -> None:
    """Raise TypeError where a put got several arguments, like a call of the function."""
    if more:
        raise TypeError(f"put takes one payload and got {1 + len(more)}: {_PAYLOAD} with all of them in it")


def no_attribute(name: str) -> NoReturn:
    """Raise AttributeError for a name that a task does not have, with the name to use instead."""
    hint = f": here it is {_CALLS[name]}" if name in _CALLS else ""
    raise AttributeError(f"a task has no attribute {name!r}{hint}")
