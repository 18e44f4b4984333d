"""`tenure ack`, `nack` and `extend`: settle or extend claimed jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from tenure.cli.main import LOST, OK, UNKNOWN
from tenure.cli.options import NodeName, QueueName, Target, default_node, duration, on_server
from tenure.cli.remote import ask, plain
from tenure.cli.screen import Payload, Shown
from tenure.cli.words import count, format_seqs, when

if TYPE_CHECKING:
    from tenure.client.client import Client

__all__ = ["ack", "extend", "nack"]

Seqs = Annotated[list[int] | None, typer.Argument(metavar="SEQ", help="Which jobs.", show_default=False)]
LeaseId = Annotated[
    str | None,
    typer.Option("--lease-id", help="Fences the jobs to this lease; alone it means every job held under it."),
]
Strict = Annotated[bool, typer.Option("--strict", help="All or nothing: change nothing if one job is not ours.")]


@on_server
def ack(
    queue: QueueName,
    seqs: Seqs = None,
    lease_id: LeaseId = None,
    node: NodeName = None,
    strict: Strict = False,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Complete jobs, which deletes them. Exit code 7 if one was not held any more."""
    which = _which(seqs, lease_id, node, strict)
    _settle(target, lambda client: client.ack(queue, **which), verb="acked", as_json=as_json)


@on_server
def nack(
    queue: QueueName,
    seqs: Seqs = None,
    lease_id: LeaseId = None,
    delay: Annotated[
        int | None,
        typer.Option("--delay", parser=duration, metavar="DURATION", help="Not before then [the queue's back-off]."),
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why; kept with the job.")] = None,
    dead: Annotated[bool, typer.Option("--dead", help="Do not try again: dead-letter the jobs now.")] = False,
    node: NodeName = None,
    strict: Strict = False,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Give jobs back, now or later. Exit code 7 if one was not held any more."""
    how: dict[str, Any] = {"delay_ms": delay, "reason": reason, "dead": dead}
    how |= _which(seqs, lease_id, node, strict)
    _settle(target, lambda client: client.nack(queue, **how), verb="nacked", as_json=as_json)


@on_server
def extend(
    queue: QueueName,
    seqs: Seqs = None,
    lease_id: LeaseId = None,
    lease: Annotated[
        int | None,
        typer.Option("--lease", parser=duration, metavar="DURATION", help="How long from now; needed with SEQ."),
    ] = None,
    node: NodeName = None,
    strict: Strict = False,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Hold jobs for longer. Exit code 7 if one was not held any more."""
    how: dict[str, Any] = {"lease_ms": lease} | _which(seqs, lease_id, node, strict)
    if seqs and lease is None:
        raise typer.BadParameter("say with --lease how long to hold them from now")
    _settle(target, lambda client: client.extend(queue, **how), verb="extended", as_json=as_json)


def _which(seqs: list[int] | None, lease_id: str | None, node: str | None, strict: bool) -> dict[str, Any]:
    if not seqs and lease_id is None:
        raise typer.BadParameter("name the jobs by SEQ, or everything of a lease by --lease-id")
    return {"seqs": seqs or None, "lease_id": lease_id, "node": node or default_node(), "strict": strict}


def _settle(target: Target, call: Callable[[Client], Any], *, verb: str, as_json: bool) -> None:
    def find(client: Client) -> Shown:
        settled = plain(call(client))
        if "deadlines" in settled:
            settled["count"] = len(settled["deadlines"])
        return {"verb": verb, **settled}, _code(settled)

    raise typer.Exit(ask(target, find, _show, as_json=as_json))


def _code(settled: Payload) -> int:
    """Return the exit code. With a lease id alone, no job under it means a lost lease. After a lost answer our own
    first copy may have settled the jobs (UNKNOWN); a repeated extend finds them as the first one left them.
    """
    if not settled["skipped"] and settled["count"]:
        return OK
    return UNKNOWN if settled["repeated"] and "deadlines" not in settled else LOST


def _show(console: Console, settled: Payload) -> None:
    until = f" until {when(max(settled['deadlines'].values()))}" if settled.get("deadlines") else ""
    console.print(f"{settled['topic']}: {settled['verb']} {count(settled['count'], 'job')}{until}", markup=False)
    unsure = ": the call had to be repeated, so it may have been done the first time" if settled["repeated"] else ""
    if settled["skipped"]:
        console.print(f"not held any more, so left alone: {format_seqs(settled['skipped'])}{unsure}", markup=False)
    elif not settled["count"]:
        console.print(f"nothing is held under this lease any more{unsure}", markup=False)
