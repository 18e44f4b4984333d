"""`Cluster`: some members, the home they share, and the network between each of them and the store."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tests.cluster.member import Member
from tests.kit.restartable_server import until
from tests.kit.seaweed import KEYS, Seaweed
from tests.kit.store_proxy import store_proxy

__all__ = ["WITHIN_S", "Cluster", "cluster_on_files", "cluster_on_s3"]

WITHIN_S: Final = 120.0
"""How long anything may take before a run gives up; nothing is right or wrong because of it."""
_TENURE: Final = Path(sys.executable).with_name("tenure")


class Cluster:
    """Members that share the home at ``home``; ``store`` is the server behind it where it is not a directory."""

    def __init__(self, home: str, members: list[Member], *, store: Seaweed | None = None) -> None:
        self.home, self.members, self.store = home, members, store

    @property
    def url(self) -> str:
        """The endpoints, as a client takes them."""
        return ",".join(member.url for member in self.members)

    def start(self) -> None:
        """Start one member after the other; the first of them leads."""
        for member in self.members:
            member.up()
            self.wait_for_leader()

    def leader(self) -> tuple[Member, int] | None:
        """Return the member that leads and its epoch, or None where none of them says so."""
        views = [(member, member.view()) for member in self.members]
        leading = [(view["epoch"], member) for member, view in views if view.get("role") == "leader"]
        if not leading:
            return None
        epoch, member = max(leading, key=lambda pair: pair[0])
        return member, epoch

    def wait_for_leader(self, *, epoch_min: int = 0) -> tuple[Member, int]:
        """Wait until somebody leads, in a later epoch than those before ``epoch_min``."""
        found: list[tuple[Member, int]] = []

        def leads() -> bool:
            self.check_alive()
            leader = self.leader()
            found[:] = [leader] if leader is not None and leader[1] >= epoch_min else []
            return bool(found)

        until(leads, "somebody leads", within_s=WITHIN_S)
        return found[0]

    def wait_for_standbys(self, *, count: int | None = None) -> None:
        """Wait until all who follow, or ``count`` of them, have what the leader had when this was called."""
        member, _ = self.wait_for_leader()
        at = member.view()
        place = (at.get("epoch", 0), at.get("number", 0))

        def reached() -> bool:
            self.check_alive()
            views = [other.view() for other in self.members if other is not member and other.is_running]
            close = [view for view in views if view and (view["epoch"], view["number"]) >= place]
            return len(close) >= (len(views) if count is None else min(count, len(views)))

        until(reached, "those who follow have caught up", within_s=WITHIN_S)

    def wait_for_successor(self) -> tuple[Member, int]:
        """Wait until the leader has seen the sign of life of somebody who follows; return the leader and its epoch."""
        self.wait_for_standbys(count=1)
        found: list[tuple[Member, int]] = []

        def knows() -> bool:
            found[:] = [self.wait_for_leader()]
            return any(member["role"] == "standby" for member in found[0][0].view().get("members", ()))

        until(knows, "the leader knows who follows", within_s=WITHIN_S)
        return found[0]

    def check_alive(self) -> None:
        """Raise AssertionError where a process ended that nobody ended."""
        for member in self.members:
            if member.is_running or member.is_stopped or member.is_down:
                continue
            raise AssertionError(f"{member.home.name} ended by itself:\n{member.log()[-4_000:]}")

    def stop(self) -> list[str]:
        """Stop those who follow, then the leader; return what is wrong."""
        leading = self.leader()
        last = [leading[0]] if leading else []
        problems = list[str]()
        for member in [*(member for member in self.members if member not in last), *last]:
            code = member.down_in_order()
            if code != 0:
                problems.append(f"{member.home.name} ended with {code}:\n{member.log()[-4_000:]}")
        return problems

    def verify(self) -> list[str]:
        """Prove every link of the home; return what is wrong."""
        done = subprocess.run([_TENURE, "home", "verify", self.home], capture_output=True, text=True, check=False)
        return [] if done.returncode == 0 else [f"home verify: {done.stdout}{done.stderr}"]

    def close(self) -> None:
        """End whatever still runs. Raises AssertionError where a server met a fault of its own."""
        for member in self.members:
            if member.is_stopped:
                member.resume()
            member.close()


@contextmanager
def cluster_on_files(directory: Path, *, members: int = 3, **settings: Any) -> Iterator[Cluster]:
    """Members whose home is a directory."""
    home = f"file://{directory}/home"
    made = Cluster(home, [Member(directory / f"data-{n}", home, settings=settings) for n in range(members)])
    try:
        yield made
    finally:
        made.close()


@contextmanager
def cluster_on_s3(directory: Path, *, members: int = 3, seed: int = 0, **settings: Any) -> Iterator[Cluster]:
    """Members whose home is a bucket of a SeaweedFS of their own, each behind a network of its own."""
    os.environ |= KEYS
    weed = directory / "weed"
    weed.mkdir(parents=True)
    store = Seaweed(weed)
    home = store.url("home")
    with ExitStack() as stack:
        store.start()
        stack.callback(store.kill)
        made = list[Member]()
        for number in range(members):
            proxy = stack.enter_context(store_proxy(urlsplit(store.endpoint).port or 0, seed=seed * 10 + number))
            url = home.replace(store.endpoint, proxy.url)
            made.append(Member(directory / f"data-{number}", url, settings=settings, proxy=proxy))
        cluster = Cluster(home, made, store=store)
        stack.callback(cluster.close)
        yield cluster
