"""`tenure inspect`: show one queue or topic, or one job, of a server; with ``--data``, a data directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from tenure.cli import screen
from tenure.cli.main import OK
from tenure.cli.options import Target, on_server
from tenure.cli.remote import ask, plain
from tenure.cli.screen import Payload, Shown, table
from tenure.cli.words import age, clean, count, format_seqs, short, size, when
from tenure.errors import NotFound

if TYPE_CHECKING:
    from tenure.client.client import Client

__all__ = ["inspect", "show_record"]

_STATES: Final = ("ready", "suspect", "in_flight", "delayed", "parked")
_DEPTHS: Final = ("ready", "suspects", "in_flight", "delayed", "parked")


@on_server
def inspect(
    topic: Annotated[
        str | None, typer.Argument(metavar="QUEUE", help="A queue, or any topic.", show_default=False)
    ] = None,
    seq: Annotated[int | None, typer.Argument(metavar="SEQ", help="One job of it.", show_default=False)] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1000, help="How many leases, and jobs of each state, to show.")
    ] = 20,
    data: Annotated[
        Path | None, typer.Option("--data", help="Read this data directory instead; no server is needed.")
    ] = None,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Show a queue: config, counters, live leases, jobs by state. With SEQ one job, its record and its deliveries.

    With --data it shows segments, topics and depths of a data directory; nothing is opened for writing.
    """
    if data is not None:
        if topic is not None:
            raise typer.BadParameter("--data shows the whole directory: leave the queue out")
        from tenure.cli.commands import directory

        raise typer.Exit(screen.answer(lambda: directory.find(data), directory.show, as_json=as_json))
    if topic is None:
        raise typer.BadParameter("name a queue, or a data directory with --data")
    if "/" in topic or topic.startswith("."):
        raise typer.BadParameter(f"{topic!r} is no topic; a data directory is read by --data {topic}")
    if seq is not None:
        raise typer.Exit(ask(target, lambda client: _one(client, topic, seq), show_record, as_json=as_json))
    raise typer.Exit(ask(target, lambda client: _whole(client, topic, limit), _show, as_json=as_json))


def _whole(client: Client, name: str, limit: int) -> Shown:
    info = client.topic(name, touch=False)
    found: Payload = plain(info)
    if info.queue is not None:
        found["leases"] = plain(client.leases(name, limit=limit).leases)
        found["jobs"] = {state: plain(client.jobs(name, state=state, limit=limit).jobs) for state in _STATES}
    return found, OK


def _one(client: Client, name: str, seq: int) -> Shown:
    """Return a job with its history, or a record where the topic is a log."""
    if client.topic(name, touch=False).queue is not None:
        return plain(client.job(name, seq)), OK
    records = client.diff(name, from_seq=max(0, seq - 1), limit=1, include_tags=True).records
    if not records or records[0].seq != seq:
        raise NotFound(f"no record {seq} in {name!r}: it was never there, or it is gone", seq=seq)
    return {"topic": name, **plain(records[0])}, OK


def _show(console: Console, found: Payload) -> None:
    """Print a queue as text."""
    first, last = found["earliest_seq"], found["head_seq"]
    seqs = f"seqs {first} to {last}, durable to {found['durable_seq']}" if first <= last else f"the next is seq {first}"
    console.print(f"{found['topic']} is a {found['type']}: {count(found['count'], 'record')}, {size(found['bytes'])}")
    console.print(f"{seqs}; last write {when(found['last_write_ts']) or 'never'}", markup=False)
    queue = found["queue"]
    if queue is not None:
        heads = tuple(f"{name.replace('_', ' ')}#" for name in (*_DEPTHS, "dead", "oldest ready", "ack_holes"))
        oldest = age(queue["oldest_ready_ms"]) if queue["ready"] and queue["oldest_ready_ms"] is not None else ""
        depths = [queue[name] for name in _DEPTHS]
        table(console, heads, [(*depths, queue["dead"], oldest, queue["ack_holes"])])
        _show_leases(console, found["leases"])
        _show_jobs(console, found["jobs"])
    table(console, ("config", "value"), ((name, _format_value(value)) for name, value in found["config"].items()))


def _show_leases(console: Console, leases: list[dict[str, Any]]) -> None:
    if leases:
        rows = (
            (
                lease["lease_id"],
                lease["node"],
                when(lease["since"]),
                when(lease["deadline"]),
                format_seqs(lease["seqs"]),
            )
            for lease in leases
        )
        table(console, ("lease", "node", "since", "deadline", "jobs"), rows)


def _show_jobs(console: Console, by_state: dict[str, list[dict[str, Any]]]) -> None:
    """Print the jobs of each state. A suspect is one of the ready ones too, and printed as a suspect."""
    rows = [
        (job["seq"], state, job["deliveries"], _tries(job), job["node"] or "", _due(job), short(job["reason"] or ""))
        for state, jobs in by_state.items()
        for job in jobs
        if not (state == "ready" and job["lost"])
    ]
    if rows:
        table(console, ("job#", "state", "deliveries#", "tries#", "node", "due", "last reason"), rows)


def _tries(job: dict[str, Any]) -> int:
    """Return how many deliveries of a job count against ``max_deliveries``."""
    tries: int = job["deliveries"] if job["tries"] is None else job["tries"]
    return tries


def _due(job: dict[str, Any]) -> str:
    return when(job["deadline"] or job["deliver_at"])


def show_record(console: Console, found: Payload) -> None:
    """Print one record as text, with its whole data."""
    rows = [(name, _format_value(found[name])) for name in ("topic", "seq", "state", "deliveries") if found.get(name)]
    if found.get("tries") is not None:
        rows.append(("tries", found["tries"]))
    rows += [(name, _format_value(found[name])) for name in ("lost", "tag") if found.get(name)]
    rows += [(name, when(found[name])) for name in ("ts", "deadline", "deliver_at") if found.get(name)]
    rows += [(name, found[name]) for name in ("producer", "node", "lease_id", "reason", "from") if found.get(name)]
    table(console, ("field", "value"), rows)
    history = found.get("history") or []
    if history:
        heads = ("lease", "node", "from", "to", "ended by", "reason")
        rows_of_history = (
            (
                each["lease_id"],
                each["node"],
                when(each["since"]),
                when(each["until"]),
                each["end"],
                each["reason"] or "",
            )
            for each in history
        )
        table(console, heads, rows_of_history)
    for name in ("meta", "data"):
        if found.get(name) is not None:
            print(f"{name}: {clean(bytes(found[name]).decode())}")


def _format_value(value: object) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
