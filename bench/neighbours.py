"""The rows of `make bench-hostile` that ask what a neighbour waits for: a heartbeat, and a 404, beside each load.

The neighbour, a process of its own, is measured three times: alone, beside two busy processes that send nothing (what
the machine itself costs), and beside the load. Every answer of a load and of the neighbour is a normal one of honest
clients, but for the kinds in which somebody has no key. `python -m bench.neighbours KIND` measures the kinds whose name
has that.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import msgspec

from bench.attacks import HONEST, KEYS, SMALL, busy_twice, crowd, head
from bench.granted import Line
from bench.hosting import server
from bench.line2 import Line2, flood2
from bench.measure import Row, calibrate, report

QUIET_S, CONTROL_S, LOADED_S = 4.0, 4.0, 8.0
PAUSE_S, RATIO_MAX = 0.01, 3.0
POLLERS, POLL_S = 80, 1 / 3
MANY = [f"key-{number}" for number in range(50)]
EIGHT_MB = b'{"records":[' + b",".join([b'{"data":"' + b"x" * 1_000_000 + b'"}'] * 8) + b"]}"
POLL = ("POST", "/v0/topics/small.full/claim", b'{"node":"poller"}')

Load = Callable[[int, str], Awaitable[None]]


class Times(msgspec.Struct):
    """Seconds that heartbeats and 404s took, each in order, and the answers that were not as expected."""

    beats_s: list[float]
    absent_s: list[float]
    errors: list[str]

    def p99_s(self) -> tuple[float, float]:
        """Return the p99 of both."""
        return self.beats_s[int(len(self.beats_s) * 0.99)], self.absent_s[int(len(self.absent_s) * 0.99)]


# The neighbour


async def fill(port: int, key: str) -> None:
    """Make what the loads and the neighbour need: two queues with a job in flight, and a log that is full."""
    line = Line(port, key)
    queue = b'{"type":"queue","durability":"memory","max_in_flight":1}'
    for name in ("honest", "small.full"):
        await line.call("PUT", f"/v0/topics/{name}", queue)
        await line.call("POST", f"/v0/topics/{name}", b'{"records":[{"data":1},{"data":2}]}')
        await line.call("POST", f"/v0/topics/{name}/claim", b'{"node":"a","lease_ms":3600000}')
    await line.call("PUT", "/v0/topics/small.log", b'{"cap_records":1,"discard":"reject","durability":"memory"}')
    await line.call("POST", "/v0/topics/small.log", b'{"records":[{"data":1}]}')
    line.close()


async def live(lines: list[Line] | list[Line2], seconds: float, pause_s: float) -> Times:
    """Send heartbeats, and ask for a topic that is not there, on each of these lines for so long."""
    times, until = Times([], [], []), time.perf_counter() + seconds
    beat = ("POST", "/v0/topics/honest/extend", b'{"node":"a","seqs":[1],"lease_ms":3600000}')
    absent = ("GET", "/v0/topics/not-there-yet", b"")

    async def one(line: Line | Line2) -> None:
        while time.perf_counter() < until:
            for (method, path, body), took_s, expected in ((beat, times.beats_s, 200), (absent, times.absent_s, 404)):
                began_s = time.perf_counter()
                try:
                    status, answer = await line.call(method, path, body)
                    if status != expected:
                        times.errors.append(f"{path}: {status} {answer[:100]!r}")
                except (OSError, asyncio.IncompleteReadError) as error:
                    times.errors.append(f"{path}: {error!r}")
                    line.close()
                took_s.append(time.perf_counter() - began_s)
            await asyncio.sleep(pause_s)

    await asyncio.gather(*map(one, lines))
    times.beats_s.sort()
    times.absent_s.sort()
    return times


async def be_neighbour(kind: str, port: int) -> None:
    """Print the times of each of the three parts; between them wait for a word."""
    this = KINDS[kind]
    lines = [Line2(port, HONEST)] if this.over_http2 else [Line(port, key) for key in this.neighbours]
    for part, seconds in enumerate((QUIET_S, CONTROL_S, LOADED_S)):
        async with _pollers(lines[0], is_on=part == 2 and this.load is None):
            times = await live(lines, seconds, PAUSE_S * len(lines))
        print(msgspec.json.encode(times).decode(), flush=True)
        await asyncio.to_thread(sys.stdin.readline)


@asynccontextmanager
async def _pollers(line: Line | Line2, *, is_on: bool) -> AsyncIterator[None]:
    """Poll on the neighbour's own connection."""

    async def poll() -> None:
        await asyncio.sleep(random.random() * POLL_S)
        while True:
            status, answer = await line.call(*POLL)
            assert status == 429, answer
            await asyncio.sleep(POLL_S)

    tasks = [asyncio.ensure_future(poll()) for _ in range(POLLERS * is_on)]
    yield
    for task in tasks:
        assert not task.done(), task
        task.cancel()


# Loads


def asking(count: int, pause_s: float, expected: int, method: str, path: str, body: bytes) -> Load:
    """Ask the same on so many connections, and get the answer that this has."""

    async def load(port: int, key: str) -> None:
        async def step() -> None:
            line = Line(port, key)
            await asyncio.sleep(random.random() * pause_s)
            try:
                while True:
                    status, answer = await line.call(method, path, body)
                    assert status == expected, answer
                    await asyncio.sleep(pause_s)
            finally:
                line.close()

        await crowd(count, step)

    return load


def flood(path: str, *, count: int = 8) -> Load:
    """Send 16 requests at once on so many connections, and the next 16 as soon as something is answered."""

    async def load(port: int, key: str) -> None:
        data = head("GET", path, 0, key=key) * 16

        async def step() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                while True:
                    writer.write(data)
                    if not await reader.read(1 << 20):
                        return
            finally:
                writer.close()

        await crowd(count, step)

    return load


def reopening(data: bytes) -> Load:
    """Send this on new connections all the time, and do not wait for the answer."""

    async def load(port: int, key: str) -> None:
        async def step() -> None:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(data)
            await asyncio.sleep(0)
            writer.close()

        await crowd(8, step, 0.0)

    return load


class Kind(msgspec.Struct, frozen=True):
    """A load and the key it comes with; None where the neighbour's own connection is shared with pollers."""

    load: Load | None
    key: str = SMALL
    keys: str = KEYS
    neighbours: tuple[str, ...] = (HONEST,)
    over_http2: bool = False


TOPIC, LIST, REFUSED = "/v0/topics/small.log", "/v0/topics?prefix=small.", "/v0/topics/nope"
POLLING, PRODUCING = asking(POLLERS, POLL_S, 429, *POLL), asking(3, 0.1, 422, "POST", TOPIC, EIGHT_MB)

KINDS: dict[str, Kind] = {
    "neighbour of 80 pollers": Kind(POLLING),
    "neighbour of 80 pollers, no keys": Kind(POLLING, "", ""),
    "neighbour of 80 pollers on its HTTP/2 connection": Kind(None, over_http2=True),
    "neighbour of producers of a full topic": Kind(PRODUCING),
    "neighbour of producers of a full topic, no keys": Kind(PRODUCING, "", ""),
    "neighbour of a granted flood": Kind(flood(TOPIC)),
    "neighbour of a granted flood, no keys": Kind(flood(TOPIC), "", ""),
    "neighbour of a granted flood of lists": Kind(flood(LIST)),
    "neighbour of a granted flood over HTTP/2": Kind(flood2(TOPIC)),
    "neighbour of a granted flood, HTTP/2 both, no keys": Kind(flood2(TOPIC), "", "", over_http2=True),
    "neighbour of 404s, no keys": Kind(flood(REFUSED), "", ""),
    "neighbour of 404s over HTTP/2": Kind(flood2(REFUSED)),
    "neighbour of one hostile key of 50": Kind(flood(TOPIC, count=32), MANY[0], ",".join(MANY), tuple(MANY[1:])),
    "neighbour of 401s": Kind(flood(REFUSED), ""),
    "neighbour of 401s over HTTP/2": Kind(flood2(REFUSED), ""),
    "neighbour of 401s on new connections": Kind(reopening(head("GET", REFUSED, 0)), ""),
    "neighbour of garbage on new connections": Kind(reopening(b"GARBAGE\r\n\r\n"), ""),
}


# The bars


def measure(kind: str) -> list[Row]:
    """One kind of load: the p99 of the neighbour's calls beside it, against quiet."""
    this, command = KINDS[kind], [sys.executable, "-m", "bench.neighbours"]
    filler = HONEST if this.keys == KEYS else this.neighbours[0]
    with tempfile.TemporaryDirectory(prefix="tenure-next-") as name, server(Path(name), keys=this.keys) as (port, pid):
        asyncio.run(fill(port, filler))
        with subprocess.Popen([*command, "live", kind, str(port)], stdin=-1, stdout=-1, text=True) as neighbour:
            quiet = _part(neighbour)
            with _beside([*command, "busy"]):
                _go(neighbour)
                control = _part(neighbour)
            with _beside([*command, "load", kind, str(port)] if this.load is not None else None):
                time.sleep(1)
                _go(neighbour)
                used_s, began_s = _cpu_s(pid), time.perf_counter()
                beside = _part(neighbour)
                share = (_cpu_s(pid) - used_s) / (time.perf_counter() - began_s)
            _go(neighbour)
    return [_row(kind, quiet, control, beside, share)]


def _row(kind: str, quiet: Times, control: Times, beside: Times, share: float) -> Row:
    ratios, controls = (
        [one / alone for one, alone in zip(times.p99_s(), quiet.p99_s(), strict=True)] for times in (beside, control)
    )
    errors = beside.errors + control.errors + quiet.errors
    if errors:
        print(f"{kind}: {errors[0]}")
    met = not errors and all(one <= max(RATIO_MAX, two) for one, two in zip(ratios, controls, strict=True))
    figures = f"heartbeat {ratios[0]:.1f} × (control {controls[0]:.1f}), 404 {ratios[1]:.1f} × ({controls[1]:.1f})"
    alone = "/".join(f"{p99_s * 1e3:.1f}" for p99_s in quiet.p99_s())
    return kind, f"{figures} of {alone} ms, {len(errors)} errors, {share:.0%} CPU", "≤ 3 × or control, 0", met


@contextmanager
def _beside(command: list[str] | None) -> Iterator[None]:
    child = subprocess.Popen(command) if command is not None else None
    try:
        yield
        if child is not None and child.poll() is not None:
            raise SystemExit(f"{command} ended by itself")
    finally:
        if child is not None:
            child.kill()
            child.wait(10)


def _part(neighbour: subprocess.Popen[str]) -> Times:
    assert neighbour.stdout is not None
    return msgspec.json.decode(neighbour.stdout.readline(), type=Times)


def _go(neighbour: subprocess.Popen[str]) -> None:
    assert neighbour.stdin is not None
    neighbour.stdin.write("go\n")
    neighbour.stdin.flush()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def main() -> None:
    match sys.argv[1:]:
        case ["live", kind, port]:
            asyncio.run(be_neighbour(kind, int(port)))
        case ["busy"]:
            asyncio.run(busy_twice(0))
        case ["load", kind, port]:
            load = KINDS[kind].load
            assert load is not None
            with suppress(KeyboardInterrupt):
                asyncio.run(load(int(port), KINDS[kind].key))  # type: ignore[arg-type]
        case wanted:
            rows = [row for kind in KINDS if not wanted or wanted[0] in kind for row in measure(kind)]
            print(f"calibration: {calibrate() / 1e6:.1f} million loop turns/s (Python {sys.version.split()[0]})")
            report("bench-hostile: what a neighbour waits for", rows)


if __name__ == "__main__":
    main()
