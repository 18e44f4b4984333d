"""`tenure queue`: create, change, show, purge and delete a queue."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from tenure.cli.commands.queue_options import FIELDS, with_config
from tenure.cli.main import OK, PROBLEM
from tenure.cli.options import QueueName, Target, on_server
from tenure.cli.remote import ask, plain
from tenure.cli.screen import Payload, Shown, table
from tenure.cli.words import age, count, size, when
from tenure.errors import Conflict, Invalid, NotFound

if TYPE_CHECKING:
    from tenure.client.client import Client
    from tenure.contract.replies import PutTopic, TopicInfo

__all__ = ["queue"]

queue = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Queues: create, set, show, purge, delete.")

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Unset = Annotated[
    list[str] | None,
    typer.Option("--unset", metavar="FIELD", help="Return a field to its default, by its name in the config."),
]


@queue.command("create")
@with_config
@on_server
def _create(
    name: QueueName,
    unset: Unset = None,
    *,
    target: Target,
    as_json: bool,
    **config: Any,
) -> None:
    """Create a queue: synced, five deliveries, then QUEUE.dead, where no option says otherwise."""
    left_out = _unset(unset or [], config)

    def find(client: Client) -> Shown:
        return _create_queue(client, name, config, left_out), OK

    raise typer.Exit(ask(target, find, _show_config, as_json=as_json))


@queue.command("set")
@with_config
@on_server
def _set(
    name: QueueName,
    unset: Unset = None,
    *,
    target: Target,
    as_json: bool,
    **config: Any,
) -> None:
    """Change what the options name, and nothing else."""
    changes = config | dict.fromkeys(_unset(unset or [], config))
    if not changes:
        raise typer.BadParameter("say what to change, by an option or by --unset")

    def find(client: Client) -> Shown:
        return _payload(client.patch_topic(name, **changes), verb="changed"), OK

    raise typer.Exit(ask(target, find, _show_config, as_json=as_json))


@queue.command("show")
@on_server
def _show(
    name: QueueName,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Show how many jobs stand where, how many lie dead, and the config."""

    def find(client: Client) -> Shown:
        return plain(client.topic(name)), OK

    raise typer.Exit(ask(target, find, _show_state, as_json=as_json))


@queue.command("purge")
@on_server
def _purge(
    name: QueueName,
    yes: Yes = False,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Delete every job that is there now, also those in flight, after asking. The queue and its config stay."""

    def find(client: Client) -> Shown:
        info = client.topic(name)
        if info.count:
            _confirm(f"Delete {_weight(info)} of {name} for good?", yes=yes)
        purged = client.delete_records(name, before_seq=info.next_seq).deleted if info.count else 0
        return {"verb": "purged", "topic": name, "count": purged}, OK

    raise typer.Exit(ask(target, find, _show_count, as_json=as_json))


@queue.command("delete")
@on_server
def _delete(
    name: QueueName,
    if_empty: Annotated[bool, typer.Option("--if-empty", help="Only where it holds nothing.")] = False,
    yes: Yes = False,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Delete a queue with its jobs, its config and the routers at either end, after asking."""

    def find(client: Client) -> Shown:
        info = client.topic(name)
        _confirm(f"Delete the {info.type} {name} with {_weight(info)} for good?", yes=yes)
        deleted = client.delete_topic(name, if_empty=if_empty)
        found = {"verb": "deleted", "topic": name, "count": info.count, "routers_removed": deleted.routers_removed}
        return found | {"deleted": deleted.deleted}, OK if deleted.deleted else PROBLEM

    raise typer.Exit(ask(target, find, _show_deleted, as_json=as_json))


def _create_queue(client: Client, name: str, config: dict[str, Any], left_out: list[str]) -> Payload:
    """Create a queue. Raises Conflict where it exists: its config is not replaced."""
    from tenure.client.config import careful_queue

    try:
        info = client.topic(name)
    except NotFound:
        pass
    else:
        if info.queue is not None:
            raise Conflict(f"queue {name!r} is there already: change it with tenure queue set", topic=name)
    wanted: dict[str, Any] = {**careful_queue(name), **config}
    made = {field: value for field, value in wanted.items() if field not in left_out}
    return _payload(client.put_topic(name, **made), verb="created")


def _unset(names: list[str], config: dict[str, Any]) -> list[str]:
    known = {field.field for field in FIELDS}
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"--unset takes a field of the config: {', '.join(sorted(known))}")
        if name in config:
            raise typer.BadParameter(f"{name} is set and unset: say one of them")
    return names


def _confirm(question: str, *, yes: bool) -> None:
    """Ask on the terminal. Raises Invalid without a terminal, Abort where the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Invalid(f"{question} Say --yes where nobody can be asked")
    typer.confirm(question, abort=True, err=True)


def _weight(info: TopicInfo) -> str:
    noun = "job" if info.queue is not None else "record"
    held = f", {info.queue.in_flight:,} of them in flight" if info.queue is not None and info.queue.in_flight else ""
    return f"{count(info.count, noun)}{held}"


def _payload(put: PutTopic, *, verb: str) -> Payload:
    found: Payload = plain(put)
    return found | {"verb": verb}


def _show_config(console: Console, found: Payload) -> None:
    console.print(f"{found['verb']} {found['topic']}", markup=False)
    _config_table(console, found["config"])


def _show_state(console: Console, found: Payload) -> None:
    about = f"{found['topic']} is a {found['type']}: {count(found['count'], 'record')}, {size(found['bytes'])}"
    console.print(f"{about}; last write {when(found['last_write_ts']) or 'never'}", markup=False)
    jobs = found["queue"]
    if jobs is not None:
        oldest = age(jobs["oldest_ready_ms"]) if jobs["ready"] and jobs["oldest_ready_ms"] is not None else ""
        heads = ("ready#", "suspects#", "in flight#", "delayed#", "parked#", "dead#", "oldest#")
        depths = (jobs[each] for each in ("ready", "suspects", "in_flight", "delayed", "parked", "dead"))
        table(console, heads, [(*depths, oldest)])
    _config_table(console, found["config"])


def _config_table(console: Console, config: dict[str, Any]) -> None:
    table(console, ("config", "value"), ((name, _format_value(value)) for name, value in config.items()))


def _format_value(value: object) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _show_count(console: Console, found: Payload) -> None:
    console.print(f"{found['topic']}: {found['verb']} {count(found['count'], 'record')}", markup=False)


def _show_deleted(console: Console, found: Payload) -> None:
    routers = found["routers_removed"]
    with_routers = f", and {count(len(routers), 'router')}: {', '.join(routers)}" if routers else ""
    console.print(f"deleted {found['topic']} with {count(found['count'], 'record')}{with_routers}", markup=False)
