"""beanstalkd with every write synced."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import greenstalk

from bench.peers.debian import program
from bench.peers.peer import Queue
from bench.peers.server import Server, free_port

__all__ = ["Beanstalkd", "BeanstalkdService"]

_TTR_S = 60


class BeanstalkdService:
    """The beanstalkd of the machine or of Debian's package."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.port = 0
        self._program = program("beanstalkd", "beanstalkd")

    def start(self) -> None:
        log = self._home / "wal"
        log.mkdir(exist_ok=True)
        self.port = free_port()
        command = [self._program, "-l", "127.0.0.1", "-p", str(self.port), "-b", log, "-f0"]
        self._server = Server(command, self.port, log=self._home / "log")

    def stop(self) -> None:
        self._server.stop()

    def pids(self) -> list[int]:
        return [self._server.pid]

    def version(self) -> str:
        return subprocess.run([self._program, "-v"], capture_output=True, text=True, check=True).stdout.strip()

    def settings(self) -> str:
        return "-b DIRECTORY -f0: a sync for each write"


class Beanstalkd(Queue):
    """One tube; the protocol has no batches, so a batch is its jobs one after the other."""

    client = "greenstalk"
    syncs = "1 / 1"
    notes = "put; reserve, then delete; no batches in the protocol, so ×100 is a hundred calls"

    def __init__(self, port: int, name: str) -> None:
        self._client = greenstalk.Client(("127.0.0.1", port), encoding=None, use=name, watch=name)

    def produce(self, payload: bytes, *, batch: int, calls: int) -> None:
        for _ in range(calls * batch):
            self._client.put(payload, ttr=_TTR_S)

    def claim_ack(self, *, batch: int, calls: int) -> int:
        count = 0
        for _ in range(calls):
            jobs = self._reserve(batch)
            for job in jobs:
                self._client.delete(job)
            count += len(jobs)
        return count

    def _reserve(self, batch: int) -> list[greenstalk.Job]:
        """Reserve jobs one after the other, until there are enough or no more."""
        jobs: list[greenstalk.Job] = []
        try:
            while len(jobs) < batch:
                jobs.append(self._client.reserve(timeout=0))
        except greenstalk.TimedOutError:
            pass
        return jobs

    def receive(self) -> Iterator[bytes]:
        while True:
            job = self._client.reserve()
            yield bytes(job.body)
            self._client.delete(job)

    def close(self) -> None:
        self._client.close()
