"""The load of `bench.console`, in a process of its own: workers as they are, told over stdin how fast and how long.

Every line `<events per second> <seconds>` on stdin is one stretch of load (0 events per second: as fast as answers
come), answered by one line of JSON. Between stretches nothing is asked of the broker, and whatever is held stays held.

An event is a row of `/events`. A worker puts ten jobs in, claims ten and settles them one by one, which is twelve rows
for ten jobs: most are acked, some nacked with a delay or given up on, and one worker sleeps until its leases run out.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from typing import cast

import msgspec
import uvloop

from bench.http import Claimed, message

TOPIC = "orders"
WORKERS = 14
BATCH = 10
BACKLOG = 3_000
SLEEPS_MS = 900
NACK_EVERY, GIVE_UP_EVERY = 30, 700
ROW = b'{"data":{"order":1234567,"text":"' + b"x" * 200 + b'"}}'
JOBS = b'{"records":[' + b",".join([ROW] * BATCH) + b"]}"

_claimed = msgspec.json.Decoder(Claimed)


class Connection(asyncio.Protocol):
    """One connection with one request under way; one that the server closed for its idleness is made anew."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        at = self._buffer.find(b"\r\n\r\n")
        if at < 0 or self._answer is None:
            return
        start = self._buffer.index(b"content-length: ") + 16
        length = int(self._buffer[start : self._buffer.index(b"\r\n", start)])
        if len(self._buffer) >= at + 4 + length:
            head, body, self._buffer = self._buffer[: at + 4], self._buffer[at + 4 :], b""
            if head.startswith(b"HTTP/1.1 20"):
                self._answer.set_result(body)
            else:
                self._answer.set_exception(RuntimeError((head + body)[:300].decode()))

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionResetError("the server closed the connection"))

    async def call(self, verb: str, body: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        if self._transport is None or self._transport.is_closing():
            await loop.create_connection(lambda: self, "127.0.0.1", self._port)
        assert self._transport is not None
        self._answer = loop.create_future()
        self._transport.write(message("POST", f"/v0/topics/{TOPIC}{verb}", body))
        return await self._answer


class Gate:
    """Lets events through at a pace while it is open, and counts them."""

    def __init__(self) -> None:
        self.events = 0
        self.under_way = 0
        self._open = asyncio.Event()
        self._apart_s = 0.0
        self._next = 0.0

    def open(self, rate: float) -> None:
        self.events = 0
        self._apart_s = 1 / rate if rate else 0.0
        self._next = time.perf_counter()
        self._open.set()

    async def shut(self) -> None:
        """Until the last answer is there."""
        self._open.clear()
        while self.under_way:
            await asyncio.sleep(0.001)

    async def turn(self) -> None:
        """Wait for the next turn, also over a time in which the gate is shut."""
        if self._apart_s:
            self._next += self._apart_s
            ahead_s = self._next - time.perf_counter()
            if ahead_s > 0.001:
                await asyncio.sleep(ahead_s)
        await self._open.wait()

    async def call(self, connection: Connection, verb: str, body: bytes) -> bytes:
        await self.turn()
        self.under_way += 1
        try:
            answer = await connection.call(verb, body)
        finally:
            self.under_way -= 1
        self.events += 1
        return answer


async def work(gate: Gate, connection: Connection, node: str, turns: itertools.count[int]) -> None:
    claim = msgspec.json.encode({"node": node, "max": BATCH})
    while True:
        await gate.call(connection, "?return_seqs=false", JOBS)
        for job in _claimed.decode(await gate.call(connection, "/claim", claim)).claimed:
            turn, about = next(turns), {"node": node, "seqs": [job.seq]}
            if turn % GIVE_UP_EVERY == 0:
                await gate.call(connection, "/nack", msgspec.json.encode({**about, "dead": True, "reason": "no use"}))
            elif turn % NACK_EVERY == 0:
                later = {**about, "delay_ms": 300, "reason": "not yet"}
                await gate.call(connection, "/nack", msgspec.json.encode(later))
            else:
                await gate.call(connection, "/ack", msgspec.json.encode(about))


async def sleep_over(gate: Gate, connection: Connection) -> None:
    """A worker that claims and never settles."""
    claim = msgspec.json.encode({"node": "sleeper", "max": 3, "lease_ms": SLEEPS_MS})
    while True:
        await gate.call(connection, "/claim", claim)
        gate.events += 1  # the expiry
        await asyncio.sleep(SLEEPS_MS / 1000)


async def main(port: int) -> None:
    gate, turns, loop = Gate(), itertools.count(1), asyncio.get_running_loop()
    tasks = [asyncio.create_task(work(gate, Connection(port), f"worker-{number}", turns)) for number in range(WORKERS)]
    tasks.append(asyncio.create_task(sleep_over(gate, Connection(port))))
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        rate, seconds = map(float, line.split())
        gate.open(rate)
        started = time.perf_counter()
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
        events, took_s = gate.events, time.perf_counter() - started
        await gate.shut()
        print(msgspec.json.encode({"events": events, "seconds": took_s}).decode(), flush=True)
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
