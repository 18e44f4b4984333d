"""A real worker at a real server, and what its page says when it is scraped over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tenure.worker.app import App
from tenure.worker.runtime.worker import Worker
from tenure.worker.verdict import Nack, Reject
from tests.kit.ports import free_port
from tests.kit.server import Running, serving

PATIENCE_S = 30
VERDICTS = ("ack", "nack", "reject", "none")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(Path(tmp_path_factory.mktemp("metrics")) / "data") as running:
        yield running


@asynccontextmanager
async def at_work(app: App, port: int) -> AsyncIterator[None]:
    worker = Worker(app, metrics_port=port)
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await asyncio.wait_for(running, PATIENCE_S)


async def scrape(port: int) -> dict[str, float]:
    """Every sample by its name and labels, as they stand on the page."""
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=PATIENCE_S) as client:
        text = (await client.get(f"http://127.0.0.1:{port}/metrics")).raise_for_status().text
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


async def test_a_workers_page_tells_what_it_did(server: Running):
    app, port = App(server.url), free_port()
    begun, may_end = asyncio.Event(), asyncio.Event()

    @app.task("mail", retries=0)
    async def mail(job: str) -> None:
        if job == "reject":
            raise Reject("no")
        if job == "nack":
            raise Nack("later", delay="1h")
        if job == "long":
            begun.set()
            await may_end.wait()

    async with at_work(app, port):
        for job in ("ack", "ack", "reject", "nack", "long"):
            await mail.put(job)
        await asyncio.wait_for(begun.wait(), PATIENCE_S)
        assert (await scrape(port))['tenure_worker_in_flight{queue="mail"}'] >= 1
        may_end.set()
        while (page := await scrape(port))['tenure_worker_handler_seconds_count{queue="mail"}'] < 5:
            await asyncio.sleep(0.01)
        jobs = {verdict: page[f'tenure_worker_jobs_total{{queue="mail",verdict="{verdict}"}}'] for verdict in VERDICTS}
        assert jobs == {"ack": 3, "nack": 1, "reject": 1, "none": 0}
        while not (await scrape(port))['tenure_worker_settlements_total{queue="mail"}'] >= 3:
            await asyncio.sleep(0.01)
        page = await scrape(port)
        assert page['tenure_worker_in_flight{queue="mail"}'] == 0
        assert page['tenure_worker_prefetched{queue="mail"}'] == 0
        assert page['tenure_worker_puts_total{queue="mail"}'] == 5
        assert 1 <= page['tenure_worker_producer_batches_total{queue="mail"}'] <= 5
        assert page['tenure_worker_queue_seconds_count{queue="mail"}'] == 5
        assert page['tenure_worker_leases_lost_total{queue="mail"}'] == 0


async def test_a_worker_fires_its_ticks_and_counts_them(server: Running):
    app, port = App(server.url), free_port()
    ticked = asyncio.Event()

    @app.periodic("clock", every="1s")
    async def clock() -> None:
        ticked.set()

    async with at_work(app, port):
        await asyncio.wait_for(ticked.wait(), PATIENCE_S)
        assert (await scrape(port))['tenure_worker_ticks_total{queue="clock"}'] >= 1
