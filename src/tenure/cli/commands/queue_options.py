"""The config of a topic as options of a command, one for each field, from one table.

A command that takes them declares ``**config`` and is wrapped by `with_config`, which passes it the fields that stand
on the command line, under the names of the wire.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, Final, NamedTuple

import typer

from tenure.cli.options import duration, set_options
from tenure.contract.config import PRIORITY_MAX

__all__ = ["FIELDS", "with_config"]


class _Field(NamedTuple):
    """An option: the field of the config that it sets, its type and its typer option."""

    field: str
    kind: Any
    option: Any
    part: str = ""


def _whole(field: str, flag: str, help: str) -> _Field:
    return _Field(field, int, typer.Option(flag, min=0, help=help, show_default=False))


def _time(field: str, flag: str, help: str, *, part: str = "") -> _Field:
    option = typer.Option(flag, parser=duration, metavar="DURATION", help=help, show_default=False)
    return _Field(field, int, option, part)


def _flag(field: str, flags: str, help: str, *, part: str = "") -> _Field:
    return _Field(field, bool, typer.Option(flags, help=help, show_default=False), part)


def _word(field: str, flag: str, help: str) -> _Field:
    return _Field(field, str, typer.Option(flag, help=help, show_default=False))


FIELDS: Final = (
    _time("lease_ms", "--lease", "How long a claim holds a job."),
    _whole("max_deliveries", "--max-deliveries", "Deliveries before a job is dead; 0 is no limit."),
    _word("dead_letter", "--dead-letter", "The topic that dead letters go to."),
    _word("dlq_strategy", "--dlq-strategy", "What becomes of dead jobs: skip, block or block_and_dlq."),
    _word("durability", "--durability", "memory, disk, fsync or replicated."),
    _time("ttl_ms", "--ttl", "Records older than this are evicted; 0 keeps them."),
    _whole("cap_records", "--cap-records", "At most so many records; 0 is no limit."),
    _whole("cap_bytes", "--cap-bytes", "At most so many bytes; 0 is no limit."),
    _word("discard", "--discard", "At a cap: evict the old, or reject the new."),
    _Field(
        "priority",
        int,
        typer.Option("--priority", min=-PRIORITY_MAX, max=PRIORITY_MAX, help="Served first where it is higher."),
    ),
    _flag("auto_priority", "--auto-priority/--no-auto-priority", "Derive a priority from the last read."),
    _flag("auto_create", "--auto-create/--no-auto-create", "Whether an append may create it again once deleted."),
    _time("idempotency_window_ms", "--idempotency-window", "How long an idempotency key is remembered."),
    _flag("dedupe_node", "--dedupe-node/--no-dedupe-node", "Leave out a reader's own records."),
    _time("claim_jitter_ms", "--claim-jitter", "Gather claims so long, then divide what is ready."),
    _flag("leases_durable", "--leases-durable/--no-leases-durable", "Claims wait for their sync."),
    _whole("max_ack_holes", "--max-ack-holes", "Refuse fresh work above so many holes; 0 is no limit."),
    _whole("max_in_flight", "--max-in-flight", "At most so many jobs in flight; 0 is no limit."),
    _time("retry_backoff", "--backoff-min", "The first wait of a job that failed.", part="min_ms"),
    _time("retry_backoff", "--backoff-max", "The longest.", part="max_ms"),
    _Field(
        "retry_backoff",
        float,
        typer.Option("--backoff-factor", help="How much longer each is.", show_default=False),
        "factor",
    ),
    _flag("retry_backoff", "--backoff-jitter/--no-backoff-jitter", "Spread the waits.", part="jitter"),
)
"""Every field of a topic's config but its type; a field with parts has an option for each part."""


def _parameter(field: _Field) -> str:
    return f"{field.field}_{field.part}" if field.part else field.field


def with_config(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `FIELDS`, and its ``config`` those that were used."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    named = [parameter for parameter in own if parameter.kind is not parameter.VAR_KEYWORD]

    @wraps(command)
    def run(**given: Any) -> None:
        config: dict[str, Any] = {}
        for field in FIELDS:
            value = given.pop(_parameter(field))
            if value is not None and field.part:
                config.setdefault(field.field, {})[field.part] = value
            elif value is not None:
                config[field.field] = value
        command(**given, **config)

    return set_options(
        run, named, [(_parameter(field), Annotated[field.kind | None, field.option], None) for field in FIELDS]
    )
