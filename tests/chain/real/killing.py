"""`Killing`: one server whose log lives in a store, killed again and again under eight clients.

Half of the time its data directory is removed too, so that the next life has nothing but the home. The clients are
those of the soak: every answer is recorded, and the history is judged in the end.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from random import Random
from typing import Any, Final, TypeVar

from tenure import AsyncClient
from tenure.testing import History, HistoryReport, check_history
from tenure.testing.history import Mark, Row
from tests.chain.real.kit import wait_until_ready
from tests.kit.http_proxy import Proxy, proxy_to
from tests.kit.restartable_server import PATIENCE_S, Serving
from tests.soak.drain import drain
from tests.soak.journal import Journal
from tests.soak.load import CLIENT
from tests.soak.producer import Producer
from tests.soak.worker import Worker

__all__ = ["CAREFUL", "Killing"]

SYNCED: Final = "synced"
CAREFUL: Final = "careful"
DELIVERIES_MAX: Final = {SYNCED: 4, CAREFUL: 6}
QUEUES: Final[dict[str, dict[str, Any]]] = {
    SYNCED: {"durability": "fsync"},
    CAREFUL: {"durability": "replicated", "leases_durable": True},
}
_ANSWERS: Final = (30, 120)
"""A life lasts until so many more answers were recorded: work is done in each, on a machine of any speed."""
_END_S: Final = 120.0
_PRODUCERS: Final = ("keyed", "plain")
_WORKERS: Final = ("first", "second")
T = TypeVar("T")


class Killing:
    """One home and its server. ``run`` once; then ``reports`` returns the verdicts, by what they are about."""

    def __init__(self, server: Serving, *, seed: int) -> None:
        self.server = server
        self.journal = Journal()
        self.burned = 0
        self._seed = seed
        self._random = Random(f"killing {seed}")
        self._stopping = asyncio.Event()

    async def run(self, kills: int) -> None:
        """Kill so many lives, then let the last one deliver everything that is left."""
        server = self.server.start()
        with ExitStack() as stack:
            proxy = stack.enter_context(proxy_to(server.port))
            wait_until_ready(server)
            async with AsyncClient(server.address) as client:
                for topic, config in QUEUES.items():
                    limit = DELIVERIES_MAX[topic]
                    await client.put_topic(topic, type="queue", max_deliveries=limit, dead_letter="dead", **config)
            working = asyncio.gather(*self._actors(proxy.url))
            for number in range(kills):
                await self._outlast(working)
                await asyncio.to_thread(self._kill, proxy, burn=number % 2 == 1)
            await self._outlast(working)
            self._stopping.set()
            async with asyncio.timeout(_END_S), AsyncClient(server.address) as client:
                await working
                await drain(client, self.journal, queues=list(QUEUES), log="none", mirror="none", dead="dead")

    def reports(self) -> dict[str, HistoryReport]:
        """Return the verdicts: on all, where a lost disk may take young leases with it, and on durable leases alone."""
        history = self.journal.history
        careful = History(row for row in map(_careful, history) if row is not None)
        return {
            "all": check_history(history, deliveries_max=DELIVERIES_MAX),
            "durable leases": check_history(careful, deliveries_max=DELIVERIES_MAX),
        }

    def _actors(self, url: str) -> list[Coroutine[Any, Any, None]]:
        """Return eight clients at work: for each queue two that produce and two that claim, ack, nack and extend."""
        actors = []
        for topic in QUEUES:
            actors += [
                self._actor(Producer, url, topic, kind).call_by_call(keyed=kind == "keyed") for kind in _PRODUCERS
            ]
            actors += [self._actor(Worker, url, topic, kind).poll() for kind in _WORKERS]
        return actors

    def _actor(self, actor: Callable[..., T], url: str, topic: str, kind: str) -> T:
        name = f"{topic}-{kind}"
        client = AsyncClient(url, node=name, settings=CLIENT)
        return actor(client, self.journal, topic, random=Random(f"{self._seed} {name}"), stopping=self._stopping)

    async def _outlast(self, working: asyncio.Future[Any]) -> None:
        """Wait until some more answers were recorded."""
        goal = len(self.journal.history) + self._random.randrange(*_ANSWERS)
        async with asyncio.timeout(PATIENCE_S):
            while len(self.journal.history) < goal:
                assert not working.done(), working.exception()
                await asyncio.sleep(0.005)

    def _kill(self, proxy: Proxy, *, burn: bool) -> None:
        """Kill the server, remove its disk where it burns, and start the next life."""
        self.server.kill()
        if burn:
            self.burned += 1
            self.journal.history.power_loss(at=self.journal.now_ms())
            shutil.rmtree(self.server.home)
        self.server.start()
        proxy.target_port = self.server.port
        wait_until_ready(self.server)


def _careful(row: Row) -> Row | None:
    """Return the row as far as it is about the queue with durable leases: a lost disk is no excuse there."""
    if not isinstance(row, Mark):
        return row if row.topic == CAREFUL else None
    mine = [(id, count) for id, count in zip(row.ids, row.tries, strict=True) if id.startswith(CAREFUL)]
    return Mark(row.what, [id for id, _ in mine], row.at, [count for _, count in mine]) if mine else None
