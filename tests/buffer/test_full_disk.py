"""A real small disk under a buffer that fills up: the producer says so, and nothing is lost or stored twice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.buffer import Producer, StoreFull, open_store
from tenure.errors import Overloaded
from tests.kit.buffers import consumed, quick
from tests.kit.small_disk import small_disk

SIZE_BYTES = 4 << 20
ENTRY = os.urandom(2 << 20)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with less room than the entry needs, until the file ``ballast`` is removed."""
    with small_disk(tmp_path / "disk", size_bytes=SIZE_BYTES) as mounted:
        yield mounted


async def test_a_produce_that_finds_no_room_was_not_written_and_goes_in_once_there_is_some(disk: Path):
    """Naive: the outcome is unknown, so the caller must read before it may produce the entry again."""
    url = f"file://{disk}/buffer"
    async with Producer(url, settings=quick(call_attempts_max=2)) as producer:
        await (await producer.produce([b"before"])).durable()
        with pytest.raises(StoreFull, match="No space left on device") as caught:
            await (await producer.produce([ENTRY])).durable()
        assert isinstance(caught.value, Overloaded)
        assert caught.value.code == "disk_full"
        (disk / "ballast").unlink()
        await (await producer.produce([ENTRY])).durable()
    assert await consumed(open_store(url)) == [b"before", ENTRY]
