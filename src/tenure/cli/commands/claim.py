"""`tenure claim`: claim jobs on a lease, to inspect them or to work on them from a script."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from tenure.cli.main import EMPTY, OK
from tenure.cli.options import NodeName, QueueName, Target, default_node, duration, on_server
from tenure.cli.remote import ask, plain
from tenure.cli.screen import Payload, Shown, table
from tenure.cli.words import count, short, when

if TYPE_CHECKING:
    from tenure.client.client import Client
    from tenure.contract.replies import Claimed

__all__ = ["claim"]

# The server answers a waiting claim after 30 s at the latest; a longer wait is several claims.
_WAIT_MS_MAX: Final = 20_000


@on_server
def claim(
    queue: QueueName,
    max_count: Annotated[int, typer.Option("--max", min=1, max=1000, help="How many jobs at most.")] = 1,
    lease: Annotated[
        int | None,
        typer.Option("--lease", parser=duration, metavar="DURATION", help="How long to hold them [the queue's]."),
    ] = None,
    wait: Annotated[
        int, typer.Option("--wait", parser=duration, metavar="DURATION", help="Wait that long for a job to come.")
    ] = "0",  # type: ignore[assignment]
    node: NodeName = None,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Lease jobs of a queue. Exit code 4 where there is none. Ack, nack or extend them with the same --node."""
    holder = node or default_node()

    def find(client: Client) -> Shown:
        found = _claim(client, queue, node=holder, max_count=max_count, lease_ms=lease, wait_ms=wait)
        payload = {"node": holder, **plain(found)}
        return payload, OK if found.jobs else EMPTY

    raise typer.Exit(ask(target, find, _show, as_json=as_json))


def _claim(client: Client, queue: str, *, node: str, max_count: int, lease_ms: int | None, wait_ms: int) -> Claimed:
    """Repeat the claim until it returns jobs or the wait is over."""
    end_s = time.monotonic() + wait_ms / 1000
    while True:
        left_ms = max(0, round((end_s - time.monotonic()) * 1000))
        found = client.claim(
            queue,
            node=node,
            max_count=max_count,
            lease_ms=lease_ms,
            wait_ms=min(left_ms, _WAIT_MS_MAX),
            claim_id=f"cli-{uuid.uuid4().hex}",
        )
        if found.jobs or time.monotonic() >= end_s:
            return found


def _show(console: Console, found: Payload) -> None:
    jobs = found["jobs"]
    if not jobs:
        console.print(f"{found['topic']}: no job is ready", markup=False)
        return
    held = f"{found['topic']}: {count(len(jobs), 'job')} held by {found['node']} until {when(jobs[0]['deadline'])}"
    console.print(f"{held}, lease {found['lease_id']}", markup=False, soft_wrap=True)
    rows = ((job["seq"], job["deliveries"], job["tag"] or "", short(bytes(job["data"]).decode())) for job in jobs)
    table(console, ("seq#", "deliveries#", "tag", "data"), rows)
