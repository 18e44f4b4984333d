"""Declare a task's queue: create it where it is missing, and otherwise set only options that are still defaults.

    the queue …                            then
    does not exist                         it is created with the task's options: fsync, max_deliveries, dead letter
    exists                                 it stays as it is, except for options that the task sets explicitly *and*
                                           whose stored value is still the wire's default: these are set; and the
                                           five deliveries of a queue that a put created are raised for its retries
    has another value, set explicitly      that value stays, and the difference is logged once
    is a log that an append created        it becomes a queue with the task's options; its records are jobs
    is a log that was configured           Conflict

So a deployment never overwrites an operator's setting. A key that may not change the config works with an existing
queue; only creating one needs the admin scope.
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
"""The options of a task that are fields of its queue's config."""


async def declare(client: AsyncClient, options: TaskOptions) -> bool:
    """Create or complete the queue of one task; return True where it was created.

    Raises Conflict where a log has its name, and Denied where the queue is missing and the key may not create it, or
    where the key may not read it: such a worker could not claim from it either.
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
    """Make a queue of a log that an append created. Raises Conflict where the log was configured."""
    try:
        return (await client.put_topic(options.queue, **options.queue_config())).created
    except Conflict:
        raise Conflict(f"{options.queue!r} is a log: give the task another queue", code="not_a_queue") from None


def to_change(options: TaskOptions, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that the task sets explicitly and that are still defaults in the stored config."""
    defaults, wanted = as_dict(DEFAULTS), dict[str, Any](options.queue_config())
    fields = [field for knob, field in _KNOBS.items() if knob in options.explicit]
    changes = {
        field: wanted[field]
        for field in fields
        if stored.get(field) != wanted[field] and stored.get(field) == defaults[field]
    }
    if "retries" in options.explicit and stored.get("max_deliveries") == DELIVERIES_MAX < options.max_deliveries:
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
        if knob in options.explicit and value not in (wanted[field], defaults[field]):
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
