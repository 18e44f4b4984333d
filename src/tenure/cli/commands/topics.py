"""`tenure topics`: list topics, one on a line, with the counts of their jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from tenure.cli.main import OK
from tenure.cli.options import Target, on_server
from tenure.cli.remote import ask, plain
from tenure.cli.screen import Payload, Shown, table
from tenure.cli.words import age, size

if TYPE_CHECKING:
    from tenure.client.client import Client
    from tenure.contract.replies import TopicInfo

__all__ = ["each_topic", "topics"]


@on_server
def topics(
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="Only names that begin so.", show_default=False)] = "",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """List topics: type, ready, in flight, delayed, dead now, age of the oldest, bytes."""

    def find(client: Client) -> Shown:
        return {"topics": [plain(info) for info in each_topic(client, prefix)]}, OK

    raise typer.Exit(ask(target, find, _show, as_json=as_json))


def each_topic(client: Client, prefix: str) -> Iterator[TopicInfo]:
    """Yield every topic of that prefix, page by page."""
    cursor: str | None = None
    while True:
        page = client.topics(prefix=prefix, page_size=1_000, cursor=cursor)
        yield from page.topics
        cursor = page.next_cursor
        if cursor is None:
            return


def _show(console: Console, found: Payload) -> None:
    if not found["topics"]:
        console.print("no topics")
        return
    heads = ("topic", "type", "records#", "ready#", "in flight#", "delayed#", "dead#", "oldest#", "bytes#")
    table(console, heads, map(_row, found["topics"]))


def _row(topic: dict[str, Any]) -> tuple[object, ...]:
    queue = topic["queue"]
    if queue is None:
        return topic["topic"], topic["type"], topic["count"], "", "", "", "", "", size(topic["bytes"])
    oldest = age(queue["oldest_ready_ms"]) if queue["ready"] and queue["oldest_ready_ms"] is not None else ""
    depths = (queue["ready"], queue["in_flight"], queue["delayed"], queue["dead"], oldest)
    return topic["topic"], topic["type"], topic["count"], *depths, size(topic["bytes"])
