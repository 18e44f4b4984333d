"""The real command, in a process of its own, and directories for it to look at."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tenure import Broker

Tenure = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def tenure() -> Tenure:
    """Run `tenure` as a user would, without a terminal."""

    def run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [Path(sys.executable).with_name("tenure"), *arguments]
        surroundings = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
        surroundings |= environment
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=surroundings)

    return run


async def _fill(directory: Path) -> None:
    async with await Broker.open(directory) as broker:
        await broker.put_topic("orders", {"type": "queue", "durability": "fsync", "lease_ms": 86_400_000})
        await broker.put_router("copy", source="orders", dest="audit")
        for number in range(5):
            await broker.produce("orders", [b'{"order":%d}' % number] * 10)
        claim = await broker.claim("orders", node="worker", max_count=5)
        await broker.ack("orders", node="worker", seqs=claim.seqs[:2])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A sound data directory: 48 jobs left of 50, 3 of them in flight, and a log of copies."""
    directory = tmp_path / "data"
    asyncio.run(_fill(directory))
    return directory


@pytest.fixture
def damaged(data: Path) -> Path:
    """The same with one bit flipped in a produce, far before the end."""
    segment = data / "segments" / "0000000001.log"
    content = bytearray(segment.read_bytes())
    content[content.index(b'{"order":3}')] ^= 1
    segment.write_bytes(content)
    return data
