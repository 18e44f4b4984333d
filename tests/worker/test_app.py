"""An app knows its tasks, opens its clients when they are needed, and asks no more of a queue than its author said."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tenure.client.config import ConfigFields
from tenure.errors import Conflict, Denied, Invalid
from tenure.worker.app import App
from tenure.worker.backends.declare import declare, to_change
from tenure.worker.options import TaskOptions
from tenure.worker.periodic import Tick
from tests.worker.lines import lines
from tests.worker.one_task import fresh_app


def options(**knobs: Any) -> TaskOptions:
    return TaskOptions.of("emails", knobs, is_async=True)  # type: ignore[arg-type]


def test_tasks_are_found_by_their_queue_and_a_queue_has_one():
    app = fresh_app()

    @app.task("emails")
    async def send(job: int) -> None: ...

    assert dict(app.tasks) == {"emails": send}
    with pytest.raises(Invalid, match="has a task already"):
        app.task("emails")(send.handler)


def test_a_decorator_without_its_parentheses_is_refused_where_it_stands():
    with pytest.raises(Invalid, match=r'needs a name in parentheses: @app\.task\("send"\)'):

        @fresh_app().task  # type: ignore[arg-type]
        async def send(job: int) -> None: ...

    with pytest.raises(Invalid, match=r"@app\.periodic"):

        @fresh_app().periodic  # type: ignore[arg-type]
        async def tick(job: int) -> None: ...

    with pytest.raises(Invalid, match="topic name"):
        fresh_app().task("no spaces")


def test_a_periodic_task_is_a_task_with_a_schedule_and_a_tick():
    app = fresh_app()

    @app.periodic("nightly", cron="0 3 * * *", timezone="Europe/Berlin", retries=1)
    async def nightly(tick: Tick) -> None: ...

    assert app.tasks["nightly"].options.retries == 1
    assert app.periodics["nightly"].client_id == "cron:nightly"
    with pytest.raises(Invalid, match="is a Tick"):

        @app.periodic("hourly", every="1h")
        async def hourly(job: int) -> None: ...

    assert list(app.tasks) == list(app.periodics) == ["nightly"]


async def test_an_app_belongs_to_one_running_loop_at_a_time():
    app = fresh_app()
    assert app.client is app.client
    with pytest.raises(Invalid, match="another running event loop"):
        await asyncio.to_thread(lambda: asyncio.run(touch(app)))
    await app.close()


async def touch(app: App) -> None:
    assert app.client.node


def test_a_second_loop_gets_a_client_of_its_own_once_the_first_is_over():
    app = fresh_app()

    async def use() -> object:
        async with app:
            return app.client

    assert asyncio.run(use()) is not asyncio.run(use())


def test_an_app_without_a_loop_is_closed_by_a_plain_with():
    with fresh_app() as app:
        assert app.blocking_client is app.blocking_client
    assert app._clients._blocking is None


# Declaring


async def test_declaring_creates_what_is_missing_and_says_so():
    app = fresh_app()
    async with lines(app) as line:
        assert await declare(line.client, options(retries=9))
        config = line.config("emails")
        assert (config.durability, config.max_deliveries, config.dead_letter) == ("fsync", 11, "emails.dead")
        assert not await declare(line.client, options(retries=9))


async def test_an_app_declares_every_task_or_those_named():
    app = fresh_app()
    for name in ("a", "b", "c"):
        app.task(name)(test_an_app_declares_every_task_or_those_named)
    async with lines(app) as line:
        await app.declare("b")
        assert list(line.broker.topics().items) == ["b"]
        await app.declare()
        assert list(line.broker.topics().items) == ["a", "b", "c"]


async def test_a_queue_that_exists_stays_as_it_is_where_the_task_says_nothing():
    app = fresh_app()
    async with lines(app) as line:
        await line.client.put_topic("emails", type="queue", cap_records=5)
        before = line.config("emails")
        await declare(line.client, options(retries=4, concurrency=3))
        assert line.config("emails") == before


async def test_what_the_task_says_fills_in_what_nobody_chose_and_keeps_the_rest():
    app = fresh_app()
    async with lines(app) as line:
        await line.client.put_topic("emails", type="queue", cap_records=5, lease_ms=60_000)
        await declare(line.client, options(durability="fsync", dead_letter="graves", max_deliveries=9))
        config = line.config("emails")
        assert (config.durability, config.dead_letter, config.max_deliveries) == ("fsync", "graves", 9)
        assert (config.cap_records, config.lease_ms) == (5, 60_000)


async def test_a_queue_that_a_put_made_gets_the_deliveries_that_the_retries_need(caplog: pytest.LogCaptureFixture):
    app = fresh_app()
    async with lines(app) as line:
        await line.client.queue("emails").put({"to": "ada"})
        with caplog.at_level(logging.WARNING, "tenure.worker"):
            await declare(line.client, options(retries=5))
        assert line.config("emails").max_deliveries == 7
    assert caplog.messages == []


async def test_what_an_operator_chose_is_never_undone(caplog: pytest.LogCaptureFixture):
    chosen: ConfigFields = {
        "type": "queue",
        "durability": "fsync",
        "max_deliveries": 20,
        "dead_letter": "ops.dead",
        "lease_ms": 90_000,
    }
    app = fresh_app()
    async with lines(app) as line:
        await line.client.put_topic("emails", **chosen)
        before = line.config("emails")
        with caplog.at_level(logging.WARNING, "tenure.worker"):
            await declare(
                line.client, options(durability="memory", max_deliveries=2, dead_letter=None, lease="10s", retries=0)
            )
        assert line.config("emails") == before
    assert len(caplog.messages) == 4
    assert "durability stays 'fsync', as the queue has it; the task says 'memory'" in caplog.messages[0]


async def test_retries_that_the_queue_cuts_short_are_warned_of(caplog: pytest.LogCaptureFixture):
    app = fresh_app()
    async with lines(app) as line:
        await line.client.put_topic("emails", type="queue", max_deliveries=3)
        await declare(line.client, options(retries=5))
    assert "ends a job after 3 deliveries, before its 5 retries" in caplog.text


async def test_a_change_between_the_look_and_the_declaration_is_not_undone():
    app = fresh_app()
    async with lines(app) as line:
        await line.client.put_topic("emails", type="queue")

        class Slow(Keyed):
            async def topic(self, name: str) -> Any:
                info = await line.client.topic(name)
                await line.broker.patch_topic(name, {"cap_records": 5})
                return info

        slow: Any = Slow(line.client)
        await declare(slow, options(durability="fsync"))
        assert (line.config("emails").durability, line.config("emails").cap_records) == ("fsync", 5)


async def test_a_log_that_an_append_made_before_the_worker_came_becomes_its_queue():
    app = fresh_app()
    async with lines(app) as line:
        await line.client.produce("emails", [1])
        await declare(line.client, options())
        assert line.config("emails").type == "queue"
        counts = (await line.client.topic("emails")).queue
        assert counts is not None
        assert counts.ready == 1


async def test_a_log_that_somebody_configured_is_a_conflict():
    app = fresh_app()
    async with lines(app) as line:
        await line.client.put_topic("emails", type="log")
        with pytest.raises(Conflict, match="is a log"):
            await declare(line.client, options())


class Keyed:
    """A client whose key may do some things only."""

    def __init__(self, client: Any, *denied: str) -> None:
        self._client = client
        self._denied = denied

    def __getattr__(self, name: str) -> Any:
        async def denied(*_: Any, **__: Any) -> None:
            raise Denied("no")

        return denied if name in self._denied else getattr(self._client, name)


async def test_a_key_without_admin_works_with_a_queue_that_exists_and_cannot_create_one(
    caplog: pytest.LogCaptureFixture,
):
    app = fresh_app()
    async with lines(app) as line:
        worker: Any = Keyed(line.client, "put_topic", "patch_topic")
        with pytest.raises(Denied):
            await declare(worker, options())
        await line.client.put_topic("emails", type="queue")
        assert not await declare(worker, options(durability="fsync"))
    assert "may not change" in caplog.text


async def test_a_key_that_may_not_read_a_queue_is_told_so_at_once():
    """It could not work there either, and would wait for ever."""
    async with lines(fresh_app()) as line:
        await line.client.put_topic("emails", type="queue")
        stranger: Any = Keyed(line.client, "topic")
        with pytest.raises(Denied):
            await declare(stranger, options())


def test_only_fields_that_still_have_the_wires_default_are_filled_in():
    stored = {"durability": "disk", "lease_ms": 30_000, "max_deliveries": 4, "dead_letter": None}
    said = options(durability="fsync", lease="1m", max_deliveries=9)
    assert to_change(said, stored) == {"durability": "fsync", "lease_ms": 60_000}
    assert to_change(options(), stored) == {}


async def test_clients_that_hold_jobs_have_nodes_of_their_own_whatever_the_app_is_called():
    """The hello of a process ends what the node of the one before it holds, and no other's."""
    app = App("http://127.0.0.1:1", node="w" * 128)
    async with app, app.new_client(more_streams=1) as first, app.new_client(more_streams=1) as second:
        assert first.node != second.node
        assert first.node.startswith("w" * 100)
        assert app.client.node == "w" * 128
