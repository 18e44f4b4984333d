"""Streams that a server pushes: work, watch and events, each as the source of a feed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tenure.client.plan.session import Session
from tenure.client.streams.feed import Source
from tenure.client.streams.watch import Events, Watch, WatchEvent, parse_starts
from tenure.client.streams.work import Work
from tenure.contract.bodies import WatchBody
from tenure.contract.commands import Claim
from tenure.contract.replies import Gap, Job, Lifecycle
from tenure.contract.values import check_whole

__all__ = ["events", "watch", "work"]


def work(
    session: Session,
    topic: str,
    *,
    node: str | None = None,
    max_count: int = 1,
    lease_ms: int | None = None,
    isolate: bool = False,
    group: str | None = None,
    suspects: bool = False,
) -> Source[list[Job]]:
    """Stream jobs as they come, in lists; an empty list is a heartbeat. At most ``max_count`` are held at once. They
    are given back when the stream ends, unless `detach` came before. It does not reconnect. ``isolate``, ``group`` and
    ``suspects`` are those of a claim; isolated jobs stay for a while when the stream ends.
    """
    claim = Claim(node=session.node_or(node), isolate=isolate, group=group, suspects=suspects)
    return Work(session, topic, claim, max_count=max_count, lease_ms=lease_ms)


def watch(
    session: Session,
    topics: str | Iterable[str] | Mapping[str, int | None],
    *,
    node: str | Sequence[str] | None = None,
    limit: int = 256,
    include_tags: bool = False,
    include_meta: bool = True,
    include_data: bool = True,
    strong: bool = False,
) -> Source[WatchEvent]:
    """Stream records of topics as they come, from their start, or above the seq that a mapping gives (None: only new
    ones). Reconnects by itself; a loss is a `Tombstone`. Ends once every topic was deleted.
    """
    body = WatchBody(
        topics=parse_starts(topics),
        node=node if node is None or isinstance(node, str) else list(node),
        limit=check_whole(limit, "limit"),
        include_tags=include_tags,
        include_meta=include_meta,
        include_data=include_data,
        consistency="strong" if strong else "eventual",
    )
    return Watch(session, body)


def events(session: Session, topic: str, *, last_event_id: str | None = None) -> Source[Lifecycle | Gap]:
    """Stream the lifecycle of a topic's jobs from now on. Reconnects by itself; a loss is a `Gap`."""
    return Events(session, topic, last_event_id=last_event_id)
