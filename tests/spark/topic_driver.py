"""A driver that writes one batch to a topic and dies at a given point: ``python topic_driver.py <json>``.

Its rows are the numbers below ``rows``, in an order that ``seed`` decides.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa

from tenure.client.client import Client
from tenure.spark.topic.options import open_client, write_options
from tenure.spark.topic.staging.delivery import deliver
from tenure.spark.topic.staging.directory import Staging
from tenure.spark.topic.staging.record import Batch, StagedFile
from tenure.spark.topic.staging.task import stage

__all__ = ["WRITER", "numbers_in", "staged"]

WRITER = "spark-test"


def staged(url: str, rows: int, *, seed: int, tasks: int = 3, first: int = 0) -> list[StagedFile]:
    """Rows as the tasks of one attempt stage them."""
    numbers = list(range(first, first + rows))
    random.Random(seed).shuffle(numbers)
    options = write_options({"url": "http://127.0.0.1:1", "topic": "t", "staging": url, "chunkRows": "100"})
    files: list[StagedFile] = []
    for task in range(tasks):
        texts = [b'{"n":%d}' % number for number in numbers[task::tasks]]
        batches = [pa.RecordBatch.from_pydict({"payload": texts})]
        files += stage(iter(batches), options, WRITER)
    return files


def numbers_in(client: Client, topic: str) -> list[int]:
    """What the topic holds, sorted."""
    found: list[int] = []
    at, caught_up = 0, False
    while not caught_up:
        page = client.diff(topic, from_seq=at, limit=1_000)
        found += [msgspec.json.decode(record.data)["n"] for record in page.records if record.data is not None]
        at, caught_up = page.next_from_seq, page.caught_up
    return sorted(found)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _around(owner: type, name: str, *, before: Callable[..., None] | None, after: Callable[..., None] | None) -> None:
    inner = getattr(owner, name)

    def call(*args: Any, **options: Any) -> Any:
        if before is not None:
            before()
        result = inner(*args, **options)
        if after is not None:
            after()
        return result

    setattr(owner, name, call)


def _kill_at(where: str) -> None:
    match where.split(":"):
        case ["never"]:
            pass
        case ["before", name]:
            _around(Staging, name, before=_die, after=None)
        case ["after", name]:
            _around(Staging, name, before=None, after=_die)
        case ["chunk", number]:
            left = iter([lambda: None] * int(number))
            _around(Client, "produce", before=None, after=lambda: next(left, _die)())


def main(asked: dict[str, Any]) -> None:
    files = staged(asked["staging"], asked["rows"], seed=asked["seed"], first=asked.get("first", 0))
    _kill_at(asked["kill"])
    with open_client(asked["url"], retry_for_ms=60_000) as client:
        deliver(Staging(asked["staging"]), client, Batch(WRITER, asked["batch"], asked["topic"]), files)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
