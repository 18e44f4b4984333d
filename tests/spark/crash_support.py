"""What the crash suite shares: entries whose sum is known, tables that are compared with it, and children."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tenure.buffer.blocking import Producer
from tenure.spark.session.session import spark_version
from tests.kit.buffers import quick
from tests.spark.crash_sinks import Case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


class Sum(NamedTuple):
    """Of entries: how many, how many different ones, and the sum of their checksums."""

    rows: int
    different: int
    checksum: int


def produced(folder: Path, entries: int, *, batch: int, groups: Sequence[str]) -> tuple[str, Sum]:
    """A buffer of so many entries, and their sum."""
    url = (folder / "buffer").as_uri()
    checksum = 0
    with Producer(url, settings=quick(initial_groups=tuple(groups))) as producer:
        for first in range(0, entries, batch):
            part = [b"entry %d %032x" % (number, number * 0x9E3779B97F4A7C15) for number in range(first, first + batch)]
            checksum += sum(map(zlib.crc32, part))
            producer.produce(part).durable()
    return url, Sum(entries, entries, checksum)


def held(spark: SparkSession, case: Case, place: str) -> Sum:
    """The sum of what a table holds, read past the sink."""
    frame = case.read(spark, place).selectExpr("entry", "seq", "index")
    row = frame.selectExpr("count(*)", "count(DISTINCT seq, index)", "coalesce(sum(crc32(entry)), 0)").collect()[0]
    return Sum(*row)


class Child:
    """A driver in a process group of its own, whose lines are kept."""

    def __init__(
        self, jobs: list[dict[str, Any]], *, conf: dict[str, str], master: str = "local[2]", at_once: int | None = None
    ) -> None:
        told: dict[str, Any] = {"jobs": jobs, "conf": conf, "master": master, "spark_version": spark_version()}
        told["at_once"] = at_once or len(jobs)
        self.lines: list[str] = []
        self.errors = ""
        self._heard = threading.Condition()
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - it is read and closed with the child's end
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.crash_driver", json.dumps(told)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._heard:
                self.lines.append(line.strip())
                self._heard.notify_all()
        with self._heard:
            self.lines.append("gone")
            self._heard.notify_all()

    def wait_for(self, what: Callable[[list[str]], bool], within_s: float = 900) -> bool:
        """Until its lines are as asked for; False where it ended before, or a job of it failed."""

        def over() -> bool:
            return what(self.lines) or any(line.startswith(("gone", "failed")) for line in self.lines)

        with self._heard:
            assert self._heard.wait_for(over, within_s), self.lines
            return what(self.lines)

    def signal(self, number: signal.Signals) -> None:
        """To the driver alone."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL to the driver and its JVM, as the loss of a machine would be."""
        if self._said.closed:
            return
        with contextlib.suppress(ProcessLookupError):  # the JVM may be there where the driver is not
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)
        self._reader.join(60)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._said.seek(0)
        self.errors = self._said.read()[-4_000:]
        self._said.close()

    def end(self, within_s: float = 600) -> None:
        """Wait for its own end, which must be a good one."""
        try:
            ended = self.wait_for(lambda lines: "ended" in lines, within_s)
        finally:
            self.kill()
        assert ended, (self.lines, self.errors)


def each_has_moved(jobs: list[dict[str, Any]], ranges: int = 1) -> Callable[[list[str]], bool]:
    """Whether every job has said that so many ranges are in its table."""

    def look(lines: list[str]) -> bool:
        return all(sum(line.startswith(f"range {job['group']} ") for line in lines) >= ranges for job in jobs)

    return look


def random_moment(seed: int, longest_s: float) -> float:
    """A time to wait before a kill, the same for the same seed."""
    import random

    return random.Random(seed).uniform(0, longest_s)


def sleep_until_it_is_killed(child: Child, seconds: float) -> None:
    """Let it run on: when the kill comes is what the test is about, not what it waits for."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and child.process.poll() is None:
        time.sleep(0.01)
