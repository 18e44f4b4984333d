"""An app against a real server: keys with few scopes, puts with and without a loop, and a worker that handles them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.client.client import Client
from tenure.errors import Denied
from tenure.worker.app import App
from tenure.worker.context import Context
from tenure.worker.runtime.worker import Worker
from tests.kit.server import Running, serving

ADMIN, WORKER, WRITER = "admin-secret", "worker-secret", "writer-secret"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with serving(tmp_path / "data", TENURE_API_KEYS=f"{ADMIN},{WORKER}:read+write,{WRITER}:write") as running:
        yield running


def emails(server: Running, key: str) -> tuple[App, list[str], asyncio.Event]:
    app = App(server.url, key=key)
    handled: list[str] = []
    done = asyncio.Event()

    @app.task("emails", durability="fsync", dead_letter="emails.dead", lease="5s")
    async def send(to: str, ctx: Context) -> None:
        handled.append(to)
        if to == "last":
            done.set()

    return app, handled, done


async def test_a_key_without_admin_works_at_a_queue_that_exists_and_puts_to_it(server: Running):
    app, handled, done = emails(server, WORKER)
    with Client(server.url, key=ADMIN) as admin:
        admin.put_topic("emails", type="queue")
        async with app:
            await app.declare()
            assert admin.topic("emails").config.dead_letter is None
            await app.tasks["emails"].put("first")
            worker = Worker(app)
            running = asyncio.create_task(worker.run())
            writer, _, _ = emails(server, WRITER)
            await asyncio.to_thread(writer.tasks["emails"].blocking.put_many, ["second", "last"])
            await writer.close()
            await done.wait()
            worker.stop()
            await running
        assert sorted(handled) == ["first", "last", "second"]
        counts = admin.topic("emails").queue
        assert counts is not None
        assert (counts.ready, counts.in_flight) == (0, 0)


async def test_creating_a_queue_by_declaring_needs_admin(server: Running):
    app, _, _ = emails(server, WORKER)
    async with app:
        with pytest.raises(Denied):
            await app.declare()
    app, _, _ = emails(server, ADMIN)
    async with app:
        await app.declare()
        assert (await app.client.topic("emails")).config.dead_letter == "emails.dead"


def test_code_without_a_loop_puts_and_closes(server: Running):
    app, _, _ = emails(server, ADMIN)
    with app:
        send = app.tasks["emails"]
        assert send.blocking.put("me", unique="once") == send.blocking.put("me", unique="once") == 1
        assert send.blocking.put_many(["a", "b"]) == [2, 3]
        assert app.blocking_client.topic("emails").config.durability == "fsync"
