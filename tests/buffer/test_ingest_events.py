"""The whole road: a server's lifecycle events through a buffer on a real S3 server into a table, each once."""

from __future__ import annotations

import os
import secrets
import signal
import sqlite3
import time
from pathlib import Path

import httpx

from tenure.buffer import Batch, Consumer, Ingest, SqliteSink
from tenure.export.rows import decode_row
from tenure.log.disk import PosixDisk
from tests.kit.broker_life import polled, rows_of
from tests.kit.processes import children_of
from tests.kit.server import Running, serving

CREATE = "create table if not exists events (batch integer, n integer, event text, topic text, unique (batch, n))"


def to_rows(batch: Batch) -> list[tuple[int, int, str, str]]:
    rows = [decode_row(entry) for entry in batch.entries]
    return [(row.batch, row.n, row.event, row.topic) for row in rows]


def work(running: Running, *, rounds: int) -> None:
    with running.client() as client:
        client.put("/v0/topics/q", json={"type": "queue"}).raise_for_status()
        for _ in range(rounds):
            client.post("/v0/topics/q", json={"records": [{"data": 1}] * 3}).raise_for_status()
            body = {"node": "w", "max": 3, "auto_ack": True}
            client.post("/v0/topics/q/claim", json=body).raise_for_status()


def kill_exporter(running: Running) -> None:
    """Send kill -9 to the process that the server has started, once it runs."""
    end = time.monotonic() + 60
    while "tenure_export_rows_total 0" in httpx.get(f"{running.url}/v0/metrics").text:
        assert time.monotonic() < end
        time.sleep(0.02)
    for child in children_of(running.process.pid):
        os.kill(child, signal.SIGKILL)


async def test_events_of_a_server_reach_a_table_through_object_storage_once(s3_server: str, tmp_path: Path) -> None:
    url = s3_server.format(name=f"events-{secrets.token_hex(4)}")
    home = tmp_path / "data"
    flags = ("--events", url, "--set", "export.flush_ms=50", "--set", "export.restart_ms_min=10")
    with serving(home, *flags) as running:
        work(running, rounds=20)
        kill_exporter(running)
        work(running, rounds=20)
    sink = SqliteSink(tmp_path / "events.db", create=CREATE, insert="insert into events values (?, ?, ?, ?)")
    async with Consumer(url) as consumer:
        await Ingest(consumer, to_rows, sink).catch_up()
    await sink.close()
    database = sqlite3.connect(tmp_path / "events.db")
    found = database.execute("select batch, n from events order by rowid").fetchall()
    counts = dict(database.execute("select event, count(*) from events group by event").fetchall())
    database.close()
    assert found == rows_of(polled(PosixDisk(home)))
    assert counts["produced"] == 40
