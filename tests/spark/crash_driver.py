"""A driver that dies at a given point: in its own process, or as a child that is killed.

As a program it takes one JSON object and runs `tenure.spark.ingest` into every sink that this names, side by side in
one session, so that one kill meets all of them wherever each happens to be.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal

from tenure.buffer.ingest.sink import Commit
from tenure.spark.jobs.ingest import Summary, ingest
from tenure.spark.jobs.plan import Limits
from tenure.spark.session.session import open_session
from tenure.spark.sinks.protocol import Needs, SparkSink
from tests.spark.crash_sinks import CASES, Case

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Point = Literal["before", "inside", "after"]
POINTS: Sequence[Point] = ("before", "inside", "after")


class Died(BaseException):
    """The driver is gone here: nothing after it runs."""


def die() -> None:
    raise Died


class Crashing:
    """A sink that does something at one point of its first write: before it, between rows and commit, or after it."""

    def __init__(self, case: Case, place: str, point: Point, act: Callable[[], None]) -> None:
        self._inner, self._case, self._point, self._act = case.make(place), case, point, act
        self.name, self.schema_version = self._inner.name, self._inner.schema_version

    def needs(self, spark_version: tuple[int, int]) -> Needs:
        return self._inner.needs(spark_version)

    def last_committed(self, spark: SparkSession, buffer: str) -> int | None:
        return self._inner.last_committed(spark, buffer)

    def write(self, frame: DataFrame, commit: Commit) -> None:
        if self._point == "before":
            self._act()
        with acting_before(self._case.commits, self._act) if self._point == "inside" else contextlib.nullcontext():
            self._inner.write(frame, commit)
        if self._point == "after":
            self._act()


@contextlib.contextmanager
def acting_before(call: str | None, act: Callable[[], None]) -> Iterator[None]:
    """Let the call do something first, once."""
    assert call is not None, "the sink does not say which of its calls commits"
    module, _, path = call.partition(":")
    owner, _, name = path.rpartition(".")
    holder = getattr(importlib.import_module(module), owner) if owner else importlib.import_module(module)
    real, acted = getattr(holder, name), list[int]()

    def acting(*args: Any, **kwargs: Any) -> Any:
        if not acted:
            acted.append(1)
            act()
        return real(*args, **kwargs)

    setattr(holder, name, acting)
    try:
        yield
    finally:
        setattr(holder, name, real)


def drive(spark: SparkSession, sink: SparkSink, told: dict[str, Any]) -> Summary:
    """The arguments of a run, for a test or a child: buffer, group, reader, entries of a range."""
    return ingest(
        spark,
        told["buffer"],
        sink,
        group=told["group"],
        reader=told.get("reader", "auto"),
        limits=Limits(entries_max=told["entries_max"]),
        transform=TRANSFORMS[told.get("transform", "none")](told),
        on_range=lambda done: print(f"range {told['group']} {done.planned.high}", flush=True),
    )


def plainly(told: dict[str, Any]) -> None:
    return None


def killing_a_worker(told: dict[str, Any]) -> Callable[[DataFrame], DataFrame]:
    """A transform whose Python worker is killed in the middle of a task, once for each range."""
    marks = told["marks"]

    def transform(frame: DataFrame) -> DataFrame:
        def rows(parts: Iterator[Any]) -> Iterator[Any]:
            from pyspark import TaskContext

            context = TaskContext.get()
            for part in parts:
                yield part
                if context is not None and context.partitionId() == 0 and context.attemptNumber() == 0:
                    with open(os.path.join(marks, f"killed-{told['group']}-{context.taskAttemptId()}"), "w"):
                        os.kill(os.getpid(), 9)

        return frame.mapInArrow(rows, frame.schema)

    return transform


def slow_in_one_task(told: dict[str, Any]) -> Callable[[DataFrame], DataFrame]:
    """A transform whose first attempt at one task waits until Spark has started a second one beside it."""
    marks = told["marks"]

    def transform(frame: DataFrame) -> DataFrame:
        def rows(parts: Iterator[Any]) -> Iterator[Any]:
            import time

            from pyspark import TaskContext

            context = TaskContext.get()
            yield from parts
            if context is None or context.partitionId() != 0:
                return
            mark = os.path.join(marks, f"speculated-{told['group']}-{context.stageId()}")
            if context.attemptNumber() > 0:
                with open(mark, "w"):
                    pass
            until_s = time.monotonic() + 60
            while not os.path.exists(mark) and time.monotonic() < until_s:
                time.sleep(0.1)

        return frame.mapInArrow(rows, frame.schema)

    return transform


TRANSFORMS: dict[str, Callable[[dict[str, Any]], Callable[[DataFrame], DataFrame] | None]] = {
    "none": plainly,
    "kill": killing_a_worker,
    "slow": slow_in_one_task,
}


def main(told: dict[str, Any]) -> None:
    """Run the jobs of ``told["jobs"]``, so many at once; ``stop`` names a point at which the process stops itself."""
    by_name = {case.name: case for case in CASES}
    sinks = [_sink(by_name[job["case"]], job) for job in told["jobs"]]
    needs = [sink.needs(tuple(told["spark_version"])) for sink in sinks]
    spark = open_session("crash", master=told["master"], conf=told["conf"], needs=needs)
    print("started", flush=True)
    with ThreadPoolExecutor(told["at_once"]) as pool:
        done = [pool.submit(_drive, spark, sink, job) for sink, job in zip(sinks, told["jobs"], strict=True)]
    for each in done:
        each.result()
    print("ended", flush=True)
    spark.stop()


def _drive(spark: SparkSession, sink: SparkSink, job: dict[str, Any]) -> None:
    """As `drive`; a job that fails reports it at once, as a waiter for its next range would wait for ever."""
    try:
        drive(spark, sink, job)
    except BaseException:
        print(f"failed {job['group']}", flush=True)
        raise


def _sink(case: Case, job: dict[str, Any]) -> SparkSink:
    if "stop" not in job:
        return case.make(job["place"])

    def stop() -> None:
        print("stopping", flush=True)
        os.kill(os.getpid(), 19)  # SIGSTOP: the parent process lets us go on

    return Crashing(case, job["place"], job["stop"], stop)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
