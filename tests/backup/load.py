"""A load on a real server: jobs are put and acked all the time, and what was acknowledged is known at every moment."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import NamedTuple, Self

from tenure.client import Client

QUEUE = "jobs"


class Known(NamedTuple):
    """What was acknowledged by a moment: the last seq that was put, the seqs that were acked, and those asked for."""

    put_seq: int
    acked: frozenset[int]


class Load:
    """Puts ``per_call`` jobs every ``every_s`` seconds and acks about half of them, until the block ends."""

    def __init__(self, url: str, *, per_call: int = 100, every_s: float = 0.02) -> None:
        self.latencies_s: list[float] = []
        self.asked: set[int] = set()
        self._url, self._per_call, self._every_s = url, per_call, every_s
        self._put_seq = 0
        self._acked: set[int] = set()
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._put, self._work)]
        self.failures: list[BaseException] = []

    def known(self) -> Known:
        """What was acknowledged by now."""
        with self._lock:
            return Known(self._put_seq, frozenset(self._acked))

    def __enter__(self) -> Self:
        with Client(self._url) as client:
            client.put_topic(QUEUE, type="queue", durability="fsync", lease_ms=600_000)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, put_seq: int) -> None:
        """Wait until that many jobs were put."""
        while self.known().put_seq < put_seq:
            assert not self.failures, self.failures
            time.sleep(0.01)

    def _put(self) -> None:
        try:
            with Client(self._url) as client:
                while not self._stop.is_set():
                    begun = time.monotonic()
                    produced = client.produce(QUEUE, [{"n": number} for number in range(self._per_call)])
                    self.latencies_s.append(time.monotonic() - begun)
                    with self._lock:
                        self._put_seq = produced.last_seq
                    self._stop.wait(max(0.0, begun + self._every_s - time.monotonic()))
        except BaseException as error:
            self.failures.append(error)

    def _work(self) -> None:
        try:
            with Client(self._url) as client:
                while not self._stop.is_set():
                    claim = client.claim(QUEUE, node="w", max_count=self._per_call, wait_ms=200)
                    seqs = [job.seq for job in claim.jobs][::2]
                    if seqs:
                        self.asked.update(seqs)
                        client.ack(QUEUE, node="w", seqs=seqs)
                        with self._lock:
                            self._acked.update(seqs)
        except BaseException as error:
            self.failures.append(error)
