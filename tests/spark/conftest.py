"""One Spark session per module, and buffers for it to read.

A module that needs jars or settings says so in attributes: ``PACKAGES = ("group:artifact:version",)`` and
``CONF = {"spark.…": "…"}``.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tenure.spark.session import open_session
from tenure.spark.sinks.protocol import Needs
from tests.buffer.support import QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2]"
SMALL = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
# py4j and Spark's Connect client leave sockets to the garbage collector, which finds them during any test.
LEFT_OPEN = (
    "ignore:unclosed <socket:ResourceWarning",
    "ignore:unclosed file <_io.BufferedWriter:ResourceWarning",
    "ignore:Exception ignored in.*<socket:pytest.PytestUnraisableExceptionWarning",
)

Filled = Callable[..., str]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            for warning in LEFT_OPEN:
                item.add_marker(pytest.mark.filterwarnings(warning))
            # All tests of a module run in one process, whose session they share; and starting Spark takes its time.
            item.add_marker(pytest.mark.xdist_group(item.path.name))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="module")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The module's session, stopped behind its last test."""
    packages: Sequence[str] = getattr(request.module, "PACKAGES", ())
    conf: dict[str, str] = getattr(request.module, "CONF", {})
    session = open_session(
        request.module.__name__, master=MASTER, conf=SMALL | conf, needs=[Needs(packages=tuple(packages))]
    )
    yield session
    session.stop()
    end_jvm()


def end_jvm() -> None:
    """End Spark's JVM: it outlives a session, and the jars of the next module can only be chosen for a new one."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
        SparkContext._gateway = SparkContext._jvm = None


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
