"""A server that is told to stop, and its clients that all come back at once (faults 36, 37)."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from tenure import Broker
from tests.kit.restartable_server import PATIENCE_S, Serve, Serving, until

CLIENTS = 500


class Worker:
    """A bare connection with a work stream on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.status = 0

    @classmethod
    async def connect(cls, server: Serving, number: int) -> Worker:
        """Open a stream; returns once it is open or refused."""
        worker = cls(*await asyncio.open_connection("127.0.0.1", server.port))
        target = f"/v0/topics/q/work?node=w-{number}"
        worker.writer.write(f"GET {target} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\n\r\n".encode())
        head = await worker.reader.readuntil(b"\r\n\r\n")
        worker.status = int(head.split()[1])
        if worker.status == 200:
            await worker.reader.readuntil(b": hb\n\n")
        return worker

    async def job(self) -> int:
        """The seq of the next job."""
        await self.reader.readuntil(b"event: job\n")
        line = (await self.reader.readline()).removeprefix(b"data: ")
        seq: int = json.loads(line)["$seq"]
        return seq

    async def ended(self) -> None:
        """Read to the end, which may be a cut."""
        with suppress(ConnectionError):
            while await self.reader.read(1 << 16):
                pass

    def close(self) -> None:
        self.writer.transport.abort()


async def all_connect(server: Serving) -> list[Worker]:
    return list(await asyncio.gather(*(Worker.connect(server, number) for number in range(CLIENTS))))


async def test_fault_36_five_hundred_workers_come_back_at_once_and_each_is_served(serve: Serve) -> None:
    """They reconnect the moment the server is back, with no pause at all, which is worse than what `retry` asks for.

    Nobody is refused, others are answered meanwhile, memory stays small, and each of them gets work.
    """
    server = serve()
    server.ok("PUT", "/v0/topics/q", {"type": "queue"})
    async with asyncio.timeout(2 * PATIENCE_S):
        workers = await all_connect(server)
        assert [worker.status for worker in workers] == [200] * CLIENTS
        await asyncio.to_thread(server.kill)
        for worker in workers:
            await worker.ended()
            worker.close()
        await asyncio.to_thread(server.start)
        before = server.resident_bytes()
        storm = asyncio.create_task(all_connect(server))
        health = await asyncio.to_thread(server.call, "GET", "/v0/health")
        assert health.status_code == 200
        workers = await storm
        assert [worker.status for worker in workers] == [200] * CLIENTS
        assert server.resident_bytes() - before < CLIENTS * 64 * 1024
        body = {"records": [{"data": number} for number in range(CLIENTS)]}
        await asyncio.to_thread(server.ok, "POST", "/v0/topics/q", body)
        seqs = await asyncio.gather(*(worker.job() for worker in workers))
        assert sorted(seqs) == list(range(1, CLIENTS + 1)), "one job each"
        for worker in workers:
            worker.close()
        await asyncio.to_thread(until, lambda: server.queue("q")["ready"] == CLIENTS, "all jobs are back")


async def test_fault_36_above_its_caps_a_server_refuses_at_once_and_says_when_to_come_back(serve: Serve) -> None:
    server = serve(settings={"streams_max": 100})
    server.ok("PUT", "/v0/topics/q", {"type": "queue"})
    async with asyncio.timeout(2 * PATIENCE_S):
        workers = await all_connect(server)
        statuses = [worker.status for worker in workers]
        assert (statuses.count(200), statuses.count(429)) == (100, CLIENTS - 100)
        refused = await asyncio.to_thread(server.call, "GET", "/v0/topics/q/work?node=late")
        assert (refused.status_code, refused.json()["error"]["detail"]["max"]) == (429, 100)
        assert int(refused.headers["retry-after"]) > 0
        for worker in workers:
            worker.close()


# Told to stop


class Producer(threading.Thread):
    """Appends batches one after the other until it is refused or cut; remembers what was answered."""

    def __init__(self, server: Serving, number: int) -> None:
        super().__init__(daemon=True)
        self.name = f"p{number}"
        self.client = server.client()
        self.answered = 0
        self.ended_by: Any = None

    def run(self) -> None:
        with self.client:
            while True:
                records = [{"data": [self.name, self.answered, i]} for i in range(50)]
                try:
                    answer = self.client.post("/v0/topics/t", json={"records": records})
                except httpx.TransportError as error:
                    self.ended_by = error
                    return
                if answer.status_code != 200:
                    self.ended_by = answer
                    return
                self.answered += 1


def stop_under_load(server: Serving, *signals: signal.Signals) -> tuple[int, list[Producer]]:
    server.ok("PUT", "/v0/topics/t", {"durability": "fsync"})
    producers = [Producer(server, number) for number in range(4)]
    for producer in producers:
        producer.start()
    until(lambda: all(producer.answered > 5 for producer in producers), "every producer is at work")
    for number in signals:
        server.signal(number)
    code = server.wait()
    for producer in producers:
        producer.join(PATIENCE_S)
        assert producer.ended_by is not None
    return code, producers


def check_whole_batches(server: Serving, producers: list[Producer]) -> None:
    """What was answered is there, what is there is whole, and each append lies together."""
    server.start()
    found: list[list[Any]] = []
    cursor, more = 0, True
    while more:
        page = server.ok("POST", "/v0/topics/t/diff", {"from_seq": cursor, "limit": 1000})
        found += [record["data"] for record in page["records"]]
        cursor, more = page["next_from_seq"], not page["caught_up"]
    assert len(found) % 50 == 0
    batches = [found[start : start + 50] for start in range(0, len(found), 50)]
    for batch in batches:
        assert [(name, number) for name, number, _ in batch] == [tuple(batch[0][:2])] * 50
        assert [i for _, _, i in batch] == list(range(50))
    for producer in producers:
        numbers = [batch[0][1] for batch in batches if batch[0][0] == producer.name]
        assert numbers in ([*range(producer.answered)], [*range(producer.answered + 1)]), "one may be unanswered"


def test_fault_37_sigterm_in_the_middle_of_batches_answers_what_it_took_and_ends(serve: Serve) -> None:
    server = serve(settings={"drain_ms": 5_000})
    began = time.monotonic()
    code, producers = stop_under_load(server, signal.SIGTERM)
    assert code == 0
    assert time.monotonic() - began < PATIENCE_S
    for producer in producers:
        if isinstance(producer.ended_by, httpx.Response):
            assert producer.ended_by.status_code == 503
            assert producer.ended_by.json()["error"]["code"] == "shutting_down"
            assert "retry-after" in producer.ended_by.headers
    check_whole_batches(server, producers)


def test_fault_37_a_second_sigterm_ends_it_at_once_and_loses_nothing(serve: Serve) -> None:
    """A stream and a long poll would keep a slow drain busy; the second signal does not wait for them."""
    server = serve(settings={"drain_ms": 600_000})
    code, producers = stop_under_load(server, signal.SIGTERM, signal.SIGTERM)
    assert code in (0, 128 + signal.SIGTERM), "0 where it had stopped before the second came"
    check_whole_batches(server, producers)


async def test_fault_37_streams_and_long_polls_are_told_and_their_jobs_stay_leased(serve: Serve) -> None:
    server = serve()
    server.ok("PUT", "/v0/topics/q", {"type": "queue"})
    server.ok("PUT", "/v0/topics/empty", {"type": "queue"})
    server.ok("POST", "/v0/topics/q", {"records": [{"data": 1}]})
    async with asyncio.timeout(PATIENCE_S):
        worker = await Worker.connect(server, 1)
        assert await worker.job() == 1
        waiting = asyncio.create_task(
            asyncio.to_thread(server.call, "POST", "/v0/topics/empty/claim", {"node": "w", "wait_ms": 30_000})
        )
        await asyncio.to_thread(server.ok, "GET", "/v0/health")
        assert await asyncio.to_thread(server.terminate) == 0
        await worker.ended()
        worker.close()
        with suppress(httpx.TransportError):  # where it had not been heard yet
            answer = await waiting
            assert (answer.status_code, answer.json().get("claimed", [])) in ((200, []), (503, [])), answer.text
        await asyncio.to_thread(server.start)
        counters = await asyncio.to_thread(server.queue, "q")
        assert (counters["ready"], counters["in_flight"]) == (0, 1), "its worker may still be at it"
        acked = await asyncio.to_thread(server.ok, "POST", "/v0/topics/q/ack", {"node": "w-1", "seqs": [1]})
        assert acked["acked"] == 1


async def fill(home: Path) -> None:
    """A log that takes a while to replay: many single appends, and no checkpoint."""
    async with await Broker.open(home) as broker:
        for start in range(0, 30_000, 100):
            answers = [broker.produce("t", [b"%d" % (start + i)]) for i in range(100)]
            await answers[-1]
    shutil.rmtree(home / "checkpoints", ignore_errors=True)


def test_fault_37_sigterm_in_the_middle_of_a_recovery_changes_nothing(serve: Serve) -> None:
    """At several moments between the start and the end of the replay: it ends soon, and the next life finds it all."""
    server = serve(start=False)
    asyncio.run(fill(server.home))
    began = time.monotonic()
    server.spawn()
    server.wait_until_it_listens()
    until(lambda: server.call("GET", "/v0/ready").status_code == 200, "it is ready")
    whole = time.monotonic() - began
    assert server.terminate() == 0
    codes = []
    for step in (3, 5, 6):
        server.spawn()
        with suppress(subprocess.TimeoutExpired):
            server.process.wait(whole * step / 7)
        codes.append(server.terminate())
    assert set(codes) <= {0, -signal.SIGTERM}, "minus: it had not come to its handlers yet"
    server.start()
    until(lambda: server.call("GET", "/v0/ready").status_code == 200, "it is ready")
    assert server.ok("GET", "/v0/topics/t")["count"] == 30_000
