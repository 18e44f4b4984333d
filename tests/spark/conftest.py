"""One Spark session for all modules that use one, and buffers for it to read.

It has the jars of every sink that can be tested in it, and is in one test process: starting Spark takes its time, and
so do its first jobs. A module that needs other settings says so: ``CONF = {"spark.sql.…": "…"}``.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tenure.spark.session.session import open_session
from tests.kit.buffers import QUICK
from tests.spark.crash_kill import SMALL
from tests.spark.crash_sinks import CASES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2]"
# py4j and Spark's Connect client leave sockets to the garbage collector, which finds them during any test.
LEFT_OPEN = (
    "ignore:unclosed <socket:ResourceWarning",
    "ignore:unclosed file <_io.BufferedWriter:ResourceWarning",
    "ignore:Exception ignored in.*<socket:pytest.PytestUnraisableExceptionWarning",
)

# Every JVM that a test starts lives for a short time: what its better compiler does would not pay, on the same cores.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

Filled = Callable[..., str]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Runs for the tests of this directory."""
    for warning in LEFT_OPEN:
        item.add_marker(pytest.mark.filterwarnings(warning))
    if item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def shared_spark() -> Iterator[SparkSession]:
    """The session, stopped after the last test."""
    session = open_session(
        "tests", master=MASTER, conf=SMALL, needs=[needs for case in CASES if (needs := case.needs()) is not None]
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def spark(request: pytest.FixtureRequest, shared_spark: SparkSession) -> Iterator[SparkSession]:
    """The session, with the module's settings."""
    conf: dict[str, str] = getattr(request.module, "CONF", {})
    before = {name: shared_spark.conf.get(name, None) for name in conf}
    for name, value in conf.items():
        shared_spark.conf.set(name, value)
    yield shared_spark
    for name, known in before.items():
        shared_spark.conf.unset(name) if known is None else shared_spark.conf.set(name, known)


@pytest.fixture
def filled(tmp_path: Path) -> Filled:
    """Makes a buffer in a directory of the test, a batch for each list of entries, and gives its URL; with the URL of
    one that is there, adds to it.
    """

    def fill(*batches: Sequence[bytes], url: str | None = None, metadata: bytes = b"") -> str:
        url = url or (tmp_path / f"buffer-{uuid.uuid4().hex[:8]}").as_uri()
        asyncio.run(_fill(url, batches, metadata))
        return url

    return fill


async def _fill(url: str, batches: Sequence[Sequence[bytes]], metadata: bytes) -> None:
    from tenure.buffer import Producer

    async with Producer(url, settings=QUICK) as producer:
        for entries in batches:
            await (await producer.produce(list(entries), metadata)).durable()
