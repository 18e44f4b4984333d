"""What a neighbour waits for beside a real server's other clients, as ratios of one run."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import httpx
import pytest

from tests.kit.server import Running, serving

ROUNDS, OTHERS = 12, 40
MEAN = ("--set", "limits.refused_ms_per_s=1", "--set", "limits.refused_burst_ms=1")
"""Next to no allowance for what is refused at the door: none of these requests is."""


def fill(client: httpx.Client) -> None:
    """Make a queue at its ``max_in_flight``: its only job in flight is the neighbour's."""
    client.put("/v0/topics/q", json={"type": "queue", "max_in_flight": 1})
    client.post("/v0/topics/q", json={"records": [{"data": 1}, {"data": 2}]})
    client.post("/v0/topics/q/claim", json={"node": "a", "lease_ms": 600_000})


@contextmanager
def flood(server: Running, *headers: str) -> Iterator[None]:
    """Ask for a topic that is not there on 8 connections, 16 times at once, and go on when something is answered."""
    data = "\r\n".join(["GET /v0/topics/nope HTTP/1.1", "host: localhost", *headers, "", ""]).encode() * 16
    stop, port = threading.Event(), urlsplit(server.url).port

    def run() -> None:
        with socket.create_connection(("127.0.0.1", port), 30) as peer:
            peer.settimeout(0.1)
            while not stop.is_set():
                peer.sendall(data)
                try:
                    peer.recv(1 << 16)
                except TimeoutError:
                    stop.wait(0.1)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("key", ["", "shared"])
def test_beside_a_flood_of_404s_a_404_and_a_429_take_as_long_as_a_200(tmp_path: Path, key: str) -> None:
    with serving(tmp_path / "data", *MEAN, TENURE_API_KEYS=key) as server, server.client() as client:
        client.headers["authorization"] = f"Bearer {key}" if key else ""
        fill(client)
        took_s: dict[int, list[float]] = {200: [], 404: [], 429: []}

        def ask(status: int) -> None:
            began_s = time.perf_counter()
            match status:
                case 429:
                    answer = client.post("/v0/topics/q/claim", json={"node": "b"})
                case _:
                    answer = client.get("/v0/topics/q" if status == 200 else "/v0/topics/not-there-yet")
            assert answer.status_code == status
            took_s[status].append(time.perf_counter() - began_s)

        with flood(server, *([f"authorization: Bearer {key}"] if key else [])):
            for _ in range(ROUNDS * 2):
                for status in took_s:
                    ask(status)
        typical_s = {status: median(times[ROUNDS:]) for status, times in took_s.items()}
        assert typical_s[404] < 10 * typical_s[200]
        assert typical_s[429] < 10 * typical_s[200]


async def test_a_heartbeat_on_the_http_2_connection_of_many_pollers_does_not_wait_for_their_429s(
    tmp_path: Path,
) -> None:
    with serving(tmp_path / "data", *MEAN) as server:
        with server.client() as client:
            fill(client)
        async with httpx.AsyncClient(http1=False, http2=True, base_url=server.url, timeout=30) as peer:

            async def beat() -> float:
                began_s = time.perf_counter()
                answer = await peer.post("/v0/topics/q/extend", json={"node": "a", "seqs": [1], "lease_ms": 600_000})
                assert answer.json()["extended"] == 1
                return time.perf_counter() - began_s

            async def beside(path: str, status: int) -> float:
                """How long a heartbeat takes that is sent with others, when this has gone on for a while."""
                took_s: list[float] = []
                statuses: set[int] = set()

                async def other() -> None:
                    statuses.add((await peer.post(path, json={"node": "b"})).status_code)

                async def last() -> None:
                    took_s.append(await beat())

                for _ in range(ROUNDS):
                    await asyncio.gather(last(), *(other() for _ in range(OTHERS)))
                assert statuses == {status}
                return median(took_s[ROUNDS // 2 :])

            granted_s = await beside("/v0/topics/q/diff", 200)
            assert await beside("/v0/topics/q/claim", 429) < 10 * granted_s
