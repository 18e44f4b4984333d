"""A made-up cluster: what a service knows of the servers that share its home, for tests without a second server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from tenure import Broker
from tenure.contract.replies import ClusterInfo, FeatureInfo, MemberInfo
from tenure.http.api.app import App
from tenure.http.api.context import Context
from tenure.http.routes import ROUTES
from tenure.http.server import serve
from tenure.http.settings import ServerSettings

__all__ = ["HERE", "THERE", "FakeCluster", "leading", "member", "standing"]

HERE, THERE = "http://a:4000", "http://b:4000"


class FakeCluster:
    """What a service knows of its cluster; a hand-over makes it a standby, unless it has a ``refusal``."""

    def __init__(self, **fields: Any) -> None:
        known: dict[str, Any] = {"role": "standby", "url": HERE, "leader": THERE, "epoch": 7, "number": 3}
        self.found = ClusterInfo(**known | fields)
        self.asked: list[str] = []
        self.refusal: Exception | None = None
        #: The features that somebody was asked for, and what is raised then.
        self.wanted: list[str] = []
        self.unreadable: Exception | None = None
        #: Set once it is decided who leads; requests wait while it is there and not set.
        self.deciding: asyncio.Event | None = None

    def info(self) -> ClusterInfo:
        return self.found

    @property
    def is_undecided(self) -> bool:
        return self.deciding is not None and not self.deciding.is_set()

    async def decided(self) -> None:
        assert self.deciding is not None
        await self.deciding.wait()

    async def hand_over(self, to: str) -> None:
        self.asked.append(to)
        await asyncio.sleep(0)
        if self.refusal is not None:
            raise self.refusal
        self.found = msgspec.structs.replace(self.found, role="standby", leader=to)

    async def check_readers(self, features: Sequence[FeatureInfo]) -> None:
        self.wanted += [feature.name for feature in features]
        await asyncio.sleep(0)
        if self.unreadable is not None:
            raise self.unreadable


def leading(*members: MemberInfo) -> FakeCluster:
    """The view of the leader at ``HERE``."""
    return FakeCluster(role="leader", leader=HERE, members=list(members))


def member(url: str, **fields: Any) -> MemberInfo:
    """A server that was seen, by default one that follows."""
    known: dict[str, Any] = {"role": "standby", "epoch": 7, "number": 3, "version": "1", "age_ms": 9}
    return MemberInfo(url=url, **known | fields)


@contextmanager
def standing(cluster: FakeCluster | None, *, home: str = "") -> Iterator[str]:
    """A server in this process with that view of its cluster; the URL it listens on. One that leads has a broker."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    where: list[str] = []

    async def live() -> None:
        async with await Broker.open(None) as broker:
            leads = cluster is None or cluster.info().role == "leader"
            context = Context(broker if leads else None, settings=ServerSettings(home=home))
            context.cluster = cluster
            async with await serve(App(context, ROUTES)) as server:
                where.append(f"http://127.0.0.1:{server.port}")
                over.append(stop := asyncio.Event())
                ready.set()
                await stop.wait()

    over: list[asyncio.Event] = []
    thread = threading.Thread(target=loop.run_until_complete, args=(live(),))
    thread.start()
    assert ready.wait(60)
    try:
        yield where[0]
    finally:
        loop.call_soon_threadsafe(over[0].set)
        thread.join()
        loop.close()
