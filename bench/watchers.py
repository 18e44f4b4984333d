"""A thousand readers of one topic: deliveries a second and latency, beside a bare program that writes the same frames.

Both servers in turns, in one run. *In step*: a record is produced once all readers have the one before. *Paced*: the
same, but not more often than ``RATE_PER_S``. *Full speed*: each produce follows the answer to the one
before, and a reader may get several records in one frame. One process reads all sockets with a plain epoll loop.

`python -m bench.watchers` measures watches and streams of lifecycle events; a word (`watch`, `events`) chooses one.
"""

from __future__ import annotations

import select
import socket
import sys
import tempfile
import time
from statistics import median

import msgspec

from bench.http import Client, message, process, tenure
from bench.measure import Row, report
from bench.processes import cpu_s

READERS = 1_000
TURNS = 3
ROUNDS = 40
RATE_PER_S = 20
FULL_S = 2.0
_FILLER = "x" * 200
_OPENED = {"watch": b"caught-up", "events": b": hb\n\n", "bare": b"caught-up"}
_MARKS = {"watch": b'"$seq":', "events": b"event: produced", "bare": b'"$seq":'}
"""What occurs once in a stream for each record."""


class Figures(msgspec.Struct):
    """What one server reached, turn by turn; waits are from a send to each of its arrivals."""

    spans_s: list[float] = []
    cpu_us: list[float] = []
    """Processor time of the server for each delivery in step."""
    waits_ms: list[float] = []
    paced_waits_ms: list[float] = []
    full_per_s: list[float] = []
    full_waits_ms: list[float] = []

    @property
    def per_s(self) -> float:
        """Deliveries a second in step."""
        return READERS / median(self.spans_s)


class Readers:
    """The sockets of all readers and of one producer, read by one loop."""

    def __init__(self, port: int, targets: list[str], *, kind: str) -> None:
        self._mark = _MARKS[kind]
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._buffer = bytearray(1 << 18)
        self.records = 0
        self.arrivals_s: list[float] = []
        self.waits_s: list[float] = []
        for target in targets:
            self._open(port, target, opened=_OPENED[kind])
        self.producer = socket.create_connection(("127.0.0.1", port))
        self.producer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._poll.register(self.producer.fileno(), select.EPOLLIN)

    def _open(self, port: int, target: str, *, opened: bytes) -> None:
        reader = socket.create_connection(("127.0.0.1", port))
        reader.sendall(message("GET", target))
        seen = b""
        while opened not in seen:
            seen += reader.recv(1 << 16)
        self._sockets[reader.fileno()] = reader
        self._poll.register(reader.fileno(), select.EPOLLIN)

    def send(self) -> float:
        """Produce one record; return when."""
        sent_s = time.perf_counter()
        body = f'{{"records":[{{"data":{{"sent":{sent_s:.6f},"x":"{_FILLER}"}}}}]}}'
        self.producer.sendall(message("POST", "/v0/topics/t?return_seqs=false", body.encode()))
        return sent_s

    def step(self, timeout_s: float) -> bool:
        """Read what has come; return whether an answer to the producer is among it."""
        answered = False
        for number, _ in self._poll.poll(timeout_s):
            reader = self._sockets.get(number)
            if reader is None:
                assert self.producer.recv(1 << 16).startswith(b"HTTP/1.1 20")
                answered = True
            else:
                size = reader.recv_into(self._buffer)
                assert size, "the server closed a stream"
                self._count(bytes(self._buffer[:size]))
        return answered

    def _count(self, data: bytes) -> None:
        count = data.count(self._mark)
        if count:
            self.records += count
            now_s = time.perf_counter()
            self.arrivals_s.append(now_s)
            at = data.find(b'"sent":')
            if at >= 0:
                self.waits_s.append(now_s - float(data[at + 7 : data.index(b",", at)]))

    def close(self) -> None:
        """Close all sockets."""
        for one in (self.producer, *self._sockets.values()):
            one.close()
        self._poll.close()


def in_step(readers: Readers) -> tuple[float, list[float]]:
    """Send one record; return the seconds until all readers and the producer have it, and the wait of each in ms."""
    goal, answered = readers.records + READERS, False
    readers.arrivals_s.clear()
    sent_s = readers.send()
    while readers.records < goal or not answered:
        answered |= readers.step(10)
    span_s = time.perf_counter() - sent_s
    return span_s, [(arrival_s - sent_s) * 1_000 for arrival_s in readers.arrivals_s]


def full_speed(readers: Readers) -> tuple[float, list[float]]:
    """Return deliveries a second and the waits, each produce right after the answer to the last."""
    readers.waits_s.clear()
    before, started = readers.records, time.perf_counter()
    readers.send()
    while time.perf_counter() - started < FULL_S:
        if readers.step(0.1):
            readers.send()
    rate = (readers.records - before) / (time.perf_counter() - started)
    waits = [wait_s * 1_000 for wait_s in readers.waits_s]
    readers.step(1)
    return rate, waits


def measure(sides: list[tuple[Readers, Figures, int]]) -> None:
    """Take one turn of each figure; both servers get their records one by one in turns, for the same weather."""
    before_s = [cpu_s(pid) for _, _, pid in sides]
    for _ in range(ROUNDS):
        for readers, figures, _ in sides:
            span_s, waits = in_step(readers)
            figures.spans_s.append(span_s)
            figures.waits_ms += waits
    for (_, figures, pid), earlier_s in zip(sides, before_s, strict=True):
        figures.cpu_us.append((cpu_s(pid) - earlier_s) * 1e6 / (ROUNDS * READERS))
    for _ in range(ROUNDS):
        for readers, figures, _ in sides:
            figures.paced_waits_ms += in_step(readers)[1]
            time.sleep(1 / RATE_PER_S / len(sides))
    for readers, figures, _ in sides:
        rate, waits = full_speed(readers)
        figures.full_per_s.append(rate)
        figures.full_waits_ms += waits


def _targets(port: int, *, kind: str) -> list[str]:
    if kind != "watch":
        return ["/v0/topics/t/events"] * READERS
    client = Client(port)
    asked = b'{"topics":{"t":{"tail":true}}}'
    return [msgspec.json.decode(client.call("POST", "/v0/watch", asked))["stream_url"] for _ in range(READERS)]


def _quantiles(waits_ms: list[float]) -> str:
    if not waits_ms:
        return "-"
    ordered = sorted(waits_ms)
    return f"{ordered[len(ordered) // 2]:.1f} / {ordered[len(ordered) * 99 // 100]:.1f}"


def compare(kind: str) -> list[Row]:
    """Measure streams of one kind and the bare program in turns."""
    ours, bare = Figures(), Figures()
    with (
        tempfile.TemporaryDirectory(prefix="tenure-bench-") as home,
        process("-m", "bench.bare") as (bare_port, bare_pid),
        process(*tenure(home)) as (port, pid),
    ):
        Client(port).call("PUT", "/v0/topics/t", b'{"type":"queue","durability":"memory"}')
        for _ in range(TURNS):
            there = Readers(bare_port, _targets(bare_port, kind="bare"), kind="bare")
            here = Readers(port, _targets(port, kind=kind), kind=kind)
            measure([(there, bare, bare_pid), (here, ours, pid)])
            there.close()
            here.close()
    ratio = ours.per_s / bare.per_s
    middle_ms = median(ours.paced_waits_ms)
    print(f"{READERS:,} readers, {kind}: deliveries/s, p50 / p99 in ms, and the server's processor time for a delivery")
    for name, one in (("tenure", ours), ("bare", bare)):
        print(
            f"  {name:<7} in step {one.per_s:>9,.0f} ({_quantiles(one.waits_ms)}, {median(one.cpu_us):.1f} µs),"
            f" {RATE_PER_S} records/s ({_quantiles(one.paced_waits_ms)}),"
            f" full speed {median(one.full_per_s):>9,.0f} ({_quantiles(one.full_waits_ms)})"
        )
    return [
        (f"{kind}: deliveries in step, against a bare program", f"{ratio:.2f}", "≥ 0.5", ratio >= 0.5),
        (f"{kind}: p50 at {RATE_PER_S} records/s", f"{middle_ms:.1f} ms", "≤ 15 ms", middle_ms <= 15),
    ]


def main() -> None:
    """Measure, and print the table."""
    rows: list[Row] = []
    for kind in sys.argv[1:] or ("watch", "events"):
        rows += compare(kind)
    report("bench-http, watchers", rows)


if __name__ == "__main__":
    main()
