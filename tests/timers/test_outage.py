"""A Redis that cannot be reached: reported once, at the first failed attempt, and again when it answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from tenure.contract.repeat import Repeat
from tenure.faststream import TimersBroker
from tenure.timers import Timers, TimersSettings
from tenure.timers.outage_log import Outage
from tenure.timers.retry import RetryingCaller
from tenure.timers.scripts import Keys
from tenure.timers.wire import Command, NoAnswer, NotSent, client_of
from tests.kit.redis_servers import free_port

PATIENCE_S = 30.0
AT_ONCE = TimersSettings(backoff_min_ms=0, backoff_max_ms=1)
PATIENT = TimersSettings(attempts_max=100_000, retry_for_ms=30_000, backoff_max_ms=200)


class FailingWire:
    """Fails with each of the errors in turn, then answers; keeps how many reports there were before each attempt."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.reports: list[int] = []
        self.reports_before: list[int] = []

    async def send(self, key: bytes, command: Command) -> Any:
        self.reports_before.append(len(self.reports))
        if self.errors:
            raise self.errors.pop(0)
        return 1

    async def pubsub(self) -> PubSub:
        raise NotSent("not here")

    async def close(self) -> None: ...


async def test_the_first_failed_attempt_is_reported_and_the_others_are_not():
    wire = FailingWire(NotSent("refused"), NoAnswer("reset"), NotSent("refused"))
    outage = Outage(lambda level, message: wire.reports.append(level))
    caller = RetryingCaller(wire, lambda topic: Keys.of("t", topic), AT_ONCE, outage=outage)
    assert (await caller.call("head", "t", (), repeat=Repeat.READ)).reply == 1
    assert wire.reports_before == [0, 1, 1, 1]
    assert wire.reports == [logging.ERROR, logging.INFO]
    wire.errors = [NotSent("again")]
    await caller.call("head", "t", (), repeat=Repeat.READ)
    assert wire.reports == [logging.ERROR, logging.INFO] * 2


async def test_timers_log_an_outage_as_an_error_at_once(caplog: pytest.LogCaptureFixture):
    client = client_of(f"redis://127.0.0.1:{free_port()}")
    async with Timers(client, settings=PATIENT) as timers:
        calling = asyncio.create_task(timers.stats("t"))
        await _until(lambda: [one for one in caplog.records if one.name == "tenure.timers"])
        assert not calling.done()
        calling.cancel()
    await client.aclose()
    [record] = [one for one in caplog.records if one.name == "tenure.timers"]
    assert record.levelno == logging.ERROR
    assert record.getMessage().startswith("Redis cannot be reached: ")


async def test_a_broker_logs_an_outage_to_its_own_logger_at_once():
    heard = Heard()
    client = client_of(f"redis://127.0.0.1:{free_port()}")
    broker = TimersBroker(Timers(client, settings=PATIENT), logger=heard.logger, graceful_timeout=0.01)

    @broker.subscriber("orders")
    async def handle(n: int) -> None: ...

    await broker.start()
    await _until(lambda: [one for one in heard.records if one.levelno == logging.ERROR])
    await broker.stop()
    await client.aclose()
    [record] = [one for one in heard.records if one.levelno == logging.ERROR]
    assert record.getMessage().startswith("Redis cannot be reached: ")


async def test_a_ping_keeps_to_its_timeout():
    """Redis takes the connection and says nothing; a hundred times the timeout passes first where it does not."""
    async with silent_server() as port:
        client = Redis(port=port)
        broker = TimersBroker(client, logger=None)
        pinging = asyncio.create_task(broker.ping(timeout=0.05))
        await asyncio.wait({pinging, asyncio.create_task(asyncio.sleep(5))}, return_when=asyncio.FIRST_COMPLETED)
        assert pinging.done()
        assert pinging.result() is False
        await broker.stop()
        await client.aclose()


async def test_a_ping_is_false_without_a_client_and_where_redis_is_away():
    assert await TimersBroker(logger=None).ping() is False
    client = client_of(f"redis://127.0.0.1:{free_port()}")
    broker = TimersBroker(client, logger=None)
    assert await broker.ping() is False
    await broker.stop()
    await client.aclose()


class Heard(logging.Handler):
    """A logger of the test's own, and what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.logger = logging.Logger("heard")
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@asynccontextmanager
async def silent_server() -> AsyncIterator[int]:
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        over.set()
        server.close()
        await server.wait_closed()


async def _until(happened: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not happened():
            await asyncio.sleep(0.005)
