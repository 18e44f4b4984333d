"""What one key is granted holds up no other: a real server, a flood of large reads, and a client that asks seldom."""

from __future__ import annotations

import asyncio
import multiprocessing
from http.client import HTTPConnection
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from time import perf_counter

from tests.kit.server import serving

FLOOD, ASKED = 200, 30
READ = b'{"limit":1}'
HEADERS = {"authorization": "Bearer SMALL", "content-type": "application/json"}


def flood(port: int, pipe: Connection) -> None:
    """Keep reads of 1 MB in flight until a word comes; send how long one took, in the middle."""
    took: list[float] = []
    head = (
        "POST /v0/topics/large.q/diff HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer LARGE\r\n"
        f"content-type: application/json\r\ncontent-length: {len(READ)}\r\n\r\n"
    ).encode()

    async def again() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
        while not pipe.poll():
            began_s = perf_counter()
            writer.write(head + READ)
            found = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(found.split(b"content-length:")[1].split(b"\r\n")[0]))
            took.append(perf_counter() - began_s)
            if len(took) == FLOOD:
                pipe.send("under way")
        writer.close()

    async def all_of_them() -> None:
        await asyncio.gather(*(again() for _ in range(FLOOD)))

    asyncio.run(all_of_them())
    pipe.send(median(took))


def test_a_key_that_asks_seldom_waits_a_fraction_of_what_a_flooding_one_waits_for_itself(tmp_path: Path) -> None:
    asked: list[float] = []
    keys = "ROOT,LARGE:read:large.,SMALL:write:small."
    with serving(tmp_path / "data", TENURE_API_KEYS=keys) as server, server.client() as client:
        client.headers["authorization"] = "Bearer ROOT"
        for topic in ("large.q", "small.q"):
            assert client.put(f"/v0/topics/{topic}", json={"durability": "memory"}).status_code == 201
        client.post("/v0/topics/large.q", json={"records": [{"data": "x" * 1_000_000}]}).raise_for_status()
        ours, theirs = multiprocessing.Pipe()
        port = int(server.url.rsplit(":", 1)[1])
        child = multiprocessing.get_context("spawn").Process(target=flood, args=(port, theirs), daemon=True)
        child.start()
        assert ours.recv() == "under way"
        for _ in range(ASKED):
            began_s = perf_counter()
            connection = HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("POST", "/v0/topics/small.q", b'{"records":[{"data":1}]}', HEADERS)
            assert connection.getresponse().status == 200
            connection.close()
            asked.append(perf_counter() - began_s)
        ours.send("enough")
        waited_for_itself = ours.recv()
        child.join()
    assert median(asked) < waited_for_itself
