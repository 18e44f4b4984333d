"""Probes of a worker: alive while its loop answers, ready while it takes jobs from every queue."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tenure.worker.observing.metrics import Stats
from tenure.worker.observing.status_page import Health, LoopHealth, StatusPage
from tests.worker.serving import MemoryApp, serving

PATIENCE_S = 30


class Said:
    """Says what a test wants to hear."""

    def __init__(self, dead: str | None = None, not_ready: str | None = None) -> None:
        self.dead = dead
        self.not_ready = not_ready

    def why_dead(self) -> str | None:
        return self.dead

    def why_not_ready(self) -> str | None:
        return self.not_ready


@contextmanager
def shown(health: Health, *, connections_max: int = 32) -> Iterator[str]:
    page = StatusPage(Stats(), health, port=0, connections_max=connections_max)
    try:
        yield f"http://127.0.0.1:{page.port}"
    finally:
        page.close()


def get(url: str, method: str = "GET") -> tuple[int, str]:
    with httpx.Client(trust_env=False, verify=False, timeout=PATIENCE_S) as client:
        answer = client.request(method, url)
    return answer.status_code, answer.text


def test_probes_are_answered_beside_the_metrics():
    said = Said()
    with shown(said) as url:
        assert get(f"{url}/healthz") == get(f"{url}/readyz?probe=1") == (200, "ok\n")
        assert get(f"{url}/readyz", "HEAD") == (200, "")
        said.not_ready = "draining"
        assert get(f"{url}/healthz") == (200, "ok\n")
        assert get(f"{url}/readyz") == (503, "draining\n")
        said.dead = "stuck"
        assert get(f"{url}/healthz") == (503, "stuck\n")
        assert get(f"{url}/metrics")[0] == 200
        assert get(f"{url}/") == (404, "here are /metrics, /healthz and /readyz\n")
        assert get(f"{url}/metrics", "POST")[0] == 501


def test_peers_that_say_nothing_cannot_take_all_threads():
    with shown(Said(), connections_max=2) as url:
        port = int(url.rpartition(":")[2])
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as third:
            assert third.recv(1) == b"", "it is closed at once"
        for connection in idle:
            connection.close()
        for _ in range(1_000):
            try:
                assert get(f"{url}/healthz") == (200, "ok\n")
                break
            except httpx.TransportError:
                continue
        else:
            pytest.fail("their places never became free")


async def test_a_loop_that_is_blocked_is_not_alive():
    health, blocked, asked = LoopHealth(lambda: None, answer_ms=50), threading.Event(), list[str | None]()

    def ask() -> None:
        asked.append(health.why_dead())
        blocked.set()

    assert await asyncio.to_thread(health.why_dead) is None
    threading.Thread(target=ask).start()
    assert blocked.wait(PATIENCE_S), "this blocks the loop until the probe has its answer"
    assert asked == ["the event loop did not answer within 50 ms: a handler blocks it"]
    assert await asyncio.to_thread(LoopHealth(lambda: "draining", answer_ms=10_000).why_not_ready) == "draining"


async def test_a_worker_is_ready_once_jobs_come_from_every_queue_and_until_it_drains():
    app, begun, may_end = MemoryApp(), asyncio.Event(), asyncio.Event()
    may_start = asyncio.Event()

    @app.on_startup
    async def hold() -> None:
        await may_start.wait()

    @app.task("slow")
    async def slow() -> None:
        begun.set()
        await may_end.wait()

    @app.task("away")
    async def away() -> None: ...

    async with serving(app) as at:
        at.wire.refuses = lambda request: "/topics/away" in request.path
        await at.start()
        assert at.worker.why_not_ready() == "starting"
        may_start.set()
        await at.until(lambda: at.worker.why_not_ready() == "no jobs come from away")
        at.wire.refuses = lambda request: False
        await at.until(lambda: at.worker.why_not_ready() is None)
        await at.broker.produce("slow", [b"null"])
        await at.until(begun.is_set)
        at.worker.stop()
        assert at.worker.why_not_ready() == "draining"
        may_end.set()
