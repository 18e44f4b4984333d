"""Three producers that write lines into a buffer side by side: threads of the test, or processes.

As a program it is one of them: `python -m tests.spark.flights.producers URL FILE LINES-PER-BATCH`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tenure.buffer.blocking import Producer

__all__ = ["produced", "producing"]

ROOT = Path(__file__).parents[3]
WITHIN_S = 600


def produced(url: str, files: Sequence[Path], *, per_batch: int) -> None:
    """Write each file by a producer of its own, side by side; return once all is durable."""
    with ThreadPoolExecutor(len(files)) as pool:
        for done in [pool.submit(_produce, url, file, per_batch) for file in files]:
            done.result()


@contextmanager
def producing(url: str, files: Sequence[Path], *, per_batch: int) -> Iterator[None]:
    """As `produced`, by processes that write while the block runs; in the end all is durable."""
    command = [sys.executable, "-m", "tests.spark.flights.producers", url]
    processes = [subprocess.Popen([*command, file, str(per_batch)], cwd=ROOT) for file in files]
    try:
        yield
        assert [process.wait(WITHIN_S) for process in processes] == [0] * len(files)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _produce(url: str, file: Path, per_batch: int) -> None:
    """Each batch is durable before the next one, so that a buffer has as many as there is work for."""
    lines = file.read_bytes().splitlines()
    with Producer(url) as producer:
        for first in range(0, len(lines), per_batch):
            handle = producer.produce(lines[first : first + per_batch])
            producer.flush()
            handle.durable()


if __name__ == "__main__":
    _produce(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
