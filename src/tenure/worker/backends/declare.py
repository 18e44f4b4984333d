"""What a task's queue is made to be: created where it is missing, and otherwise changed only where nobody chose.

    the queue …                            then
    is not there                           it is created as the task says: fsync, max_deliveries, dead letter
    is there                               it stays as it is, but for knobs that the task writes down *and* whose
                                           stored value is still the wire's default: these are filled in; and the
                                           five deliveries that a put makes a queue with are raised for its retries
    has another value, chosen by somebody  that value stays, and the difference is logged once
    is a log that an append made           it becomes a queue as the task says; its records are jobs
    is a log that somebody configured      Conflict

So an operator's setting is never undone by a deployment. A key that may not change the config works with a queue that
exists; only creating one needs the admin scope.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict

from tenure.client.config import DELIVERIES_MAX
from tenure.contract.config import DEFAULTS, as_dict
from tenure.errors import Conflict, Denied, NotFound
from tenure.worker.options import TaskOptions

if TYPE_CHECKING:
    from tenure.client.client import AsyncClient

__all__ = ["declare", "to_change"]

log = logging.getLogger("tenure.worker")

_KNOBS: Final = {
    "durability": "durability",
    "lease": "lease_ms",
    "max_deliveries": "max_deliveries",
    "dead_letter": "dead_letter",
}
"""Which knobs of a task are fields of its queue's config."""


async def declare(client: AsyncClient, options: TaskOptions) -> bool:
    """Make the queue of one task what it has to be; True where it was created.

    Raises Conflict where a log has its name, and Denied where it is missing and the key may not create it, or where the
    key may not even read it: nor could it work there.
    """
    try:
        config = (await client.topic(options.queue)).config
    except NotFound:
        return (await client.put_topic(options.queue, **options.queue_config())).created
    if config.type != "queue":
        return await _claim_log(client, options)
    stored = asdict(config)
    changes = to_change(options, stored)
    _warn_of_differences(options, {**stored, **changes})
    if changes:
        await _change(client, options.queue, changes)
    return False


async def _claim_log(client: AsyncClient, options: TaskOptions) -> bool:
    """Make a queue of a log that an append made before anybody declared it. Raises Conflict where somebody did."""
    try:
        return (await client.put_topic(options.queue, **options.queue_config())).created
    except Conflict:
        raise Conflict(f"{options.queue!r} is a log: give the task another queue", code="not_a_queue") from None


def to_change(options: TaskOptions, stored: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that the task writes down and nobody else has."""
    defaults, wanted = as_dict(DEFAULTS), dict[str, Any](options.queue_config())
    fields = [field for knob, field in _KNOBS.items() if knob in options.said]
    changes = {
        field: wanted[field]
        for field in fields
        if stored.get(field) != wanted[field] and stored.get(field) == defaults[field]
    }
    if "retries" in options.said and stored.get("max_deliveries") == DELIVERIES_MAX < options.max_deliveries:
        changes["max_deliveries"] = options.max_deliveries
    return changes


async def _change(client: AsyncClient, queue: str, changes: dict[str, Any]) -> None:
    try:
        await client.patch_topic(queue, **changes)
    except Denied:
        log.warning("%s: this key may not change the queue's config, it stays as it is", queue)


def _warn_of_differences(options: TaskOptions, stored: Mapping[str, Any]) -> None:
    defaults, wanted = as_dict(DEFAULTS), dict[str, Any](options.queue_config())
    for knob, field in _KNOBS.items():
        value = stored.get(field)
        if knob in options.said and value not in (wanted[field], defaults[field]):
            log.warning(
                "%s: %s stays %r, as the queue has it; the task says %r", options.queue, field, value, wanted[field]
            )
    deliveries = stored.get("max_deliveries") or 0
    if 0 < deliveries <= options.retries:
        log.warning(
            "%s: the queue ends a job after %d deliveries, before its %d retries",
            options.queue,
            deliveries,
            options.retries,
        )
