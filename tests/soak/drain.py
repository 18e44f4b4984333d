"""The end of a run: deliver and ack everything that is left, and read the dead letters, the log and its copy."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from tenure import AsyncClient
from tenure.client import ReadRecord
from tenure.contract.provenance import read
from tests.kit.restartable_server import PATIENCE_S
from tests.soak.journal import Journal, id_of
from tests.soak.worker import LEASE_MS

__all__ = ["drain"]

_LEASE_MS: Final = 60_000
_NODE: Final = "drain"


async def drain(client: AsyncClient, journal: Journal, *, queues: list[str], log: str, mirror: str, dead: str) -> int:
    """Record what is left; returns the last seq of the log. Nobody else may be at work."""
    for topic in queues:
        while (await client.topic(topic)).count:
            await _drain_some(client, journal, topic)
    letters = await _read(client, dead)
    origins = [read(record.meta) for record in letters]
    ids = [id_of(record.data) for record in letters]
    tries = [(origin.tries or origin.deliveries) if origin else 0 for origin in origins]
    journal.history.dead_letters(ids, tries=tries)
    _note_read(journal, dead, letters)
    entries = await _read(client, log)
    _note_read(journal, log, entries)
    journal.problems += await _compare_copy(client, mirror, [id_of(entry.data) for entry in entries])
    return entries[-1].seq if entries else 0


async def _compare_copy(client: AsyncClient, mirror: str, ids: list[str]) -> list[str]:
    """Wait for the router; returns what is wrong. It copies at least once and in order."""
    copies: list[str] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            while len(set(copies)) < len(ids):
                copies = [id_of(record.data) for record in await _read(client, mirror)]
    if list(dict.fromkeys(copies)) == ids:
        return []
    missing = sorted(set(ids).difference(copies))[:8]
    return [f"the router's copy differs: {len(copies)} of {len(ids)} records, missing {missing}, or not in order"]


async def _drain_some(client: AsyncClient, journal: Journal, topic: str) -> None:
    claimed = await client.claim(topic, node=_NODE, max_count=500, lease_ms=_LEASE_MS, wait_ms=2 * LEASE_MS)
    if not claimed.jobs:
        return
    journal.delivered(topic, claimed.jobs, node=_NODE, lease_ms=_LEASE_MS)
    at, lease = journal.now_ms(), claimed.lease_id or ""
    settled = await client.ack(topic, [job.seq for job in claimed.jobs], node=_NODE)
    for job in claimed.jobs:
        outcome = "fail" if job.seq in settled.skipped else "ok"
        journal.history.ack(topic, job.seq, lease=lease, outcome=outcome, at=at)  # type: ignore[arg-type]


async def _read(client: AsyncClient, topic: str) -> list[ReadRecord]:
    if topic not in [info.topic for info in (await client.topics(prefix=topic)).topics]:
        return []
    records, cursor = list[ReadRecord](), 0
    while True:
        page = await client.diff(topic, from_seq=cursor, limit=1000)
        records += page.records
        cursor = page.next_from_seq
        if page.caught_up:
            return records


def _note_read(journal: Journal, topic: str, records: list[ReadRecord]) -> None:
    journal.history.watched(topic, [r.seq for r in records], [id_of(r.data) for r in records], by=_NODE)
