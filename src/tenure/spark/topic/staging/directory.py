"""The staging directory: files of rows on their way, the record of each chosen batch, and what is done.

    staged/<writer>/<random>            rows, by any attempt of a task
    chosen/<writer>/<batch>.json        the record of a batch; created only if it is absent, and so once
    done/<writer>/<batch>.json          every chunk of the batch is in the topic

``done`` outlives ``chosen``: a driver that finds no record and creates one checks ``done`` once more, and so cannot
begin a batch again that another driver finished. Of one writer the newest ``done`` stays for ever.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import msgspec

from tenure.buffer.metrics import BufferMetrics
from tenure.buffer.settings import BufferSettings
from tenure.errors import Corrupt
from tenure.objects.background import background
from tenure.objects.metered import Metered
from tenure.objects.retrying import RetryingStore
from tenure.objects.store import ObjectInfo, ObjectMissing, open_store
from tenure.spark.topic.staging.record import Batch, Chunk, Record, StagedFile, dump_record, load_record

__all__ = ["Staging"]

_RECORD_BYTES_MAX = 256 << 20
_SWEPT_MAX = 10_000


class Staging:
    """A staging directory, with blocking calls. Made in the process that uses it, and never pickled.

    Every call raises StoreRefused, StoreFull and, where the store does not answer, OutcomeUnknown.
    """

    def __init__(self, url: str) -> None:
        self._retrying = RetryingStore(Metered(open_store(url), BufferMetrics()), BufferSettings())

    # Rows

    def put(self, writer: str, data: bytes) -> str:
        """Store a file of rows; return its key."""
        key = f"staged/{writer}/{secrets.token_hex(16)}"
        background().run(self._retrying.create_own(key, data))
        return key

    def read(self, file: StagedFile, chunk: Chunk) -> bytes:
        """Return a chunk's bytes. Raises Corrupt (``staged_damaged``) where its file is gone."""
        store = self._retrying.store
        try:
            return background().run(
                self._retrying.repeat(
                    lambda: store.get(file.key, start=chunk.offset, length=chunk.bytes, limit_bytes=chunk.bytes)
                )
            )
        except ObjectMissing as error:
            raise Corrupt(f"{file.key} is gone from the staging directory", code="staged_damaged") from error

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove files that no record names."""
        self._delete([file.key for file in files])

    # Batches

    def choose(self, record: Record) -> Record:
        """Store the record of the batch and return it, or the one that was there."""
        key = _chosen(record.batch)
        if background().run(self._retrying.create(key, dump_record(record))):
            return record
        found = self.chosen(record.batch)
        if found is None:  # finished and removed by another driver since
            return self.choose(record)
        return found

    def chosen(self, batch: Batch) -> Record | None:
        """Return the record of a batch, if one was chosen and is not removed."""
        return self._load(_chosen(batch))

    def chosen_numbers(self, writer: str) -> list[int]:
        """Return the batches of a writer that have a record, ascending."""
        return [_number(info.key) for info in self._list(f"chosen/{writer}/")]

    def age_ms(self, batch: Batch) -> int:
        """Return how long ago the batch was chosen, by the store's clock."""

        async def age() -> int:
            store = self._retrying.store
            info = await self._retrying.repeat(lambda: store.head(_chosen(batch)))
            return await self._retrying.repeat(store.now_ms) - info.modified_ms

        return background().run(age())

    def done(self, writer: str) -> int | None:
        """Return the newest batch of a writer whose rows are all in the topic."""
        numbers = [_number(info.key) for info in self._list(f"done/{writer}/")]
        return numbers[-1] if numbers else None

    def finish(self, record: Record) -> None:
        """Note that every chunk is in the topic, then remove what was needed for that."""
        batch = record.batch
        about = {"topic": batch.topic, "rows": record.rows}
        background().run(self._retrying.create_own(_done(batch), msgspec.json.encode(about)))
        self.forget(record)
        older = [info.key for info in self._list(f"done/{batch.writer}/") if _number(info.key) < batch.number]
        self._delete(older)

    def forget(self, record: Record) -> None:
        """Remove the files and the record of a batch that is done."""
        self.discard(record.files)
        self._delete([_chosen(record.batch)])

    def sweep(self, *, grace_ms: int) -> int:
        """Remove staged files of any writer that are older than the grace and that no record names; return how many.

        They were left behind by attempts that were given up, and by drivers that died before they chose.
        """
        staged = self._list("staged/")
        if not staged:
            return 0
        before_ms = background().run(self._retrying.repeat(self._retrying.store.now_ms)) - grace_ms
        old = [info.key for info in staged if info.modified_ms < before_ms][:_SWEPT_MAX]
        if not old:
            return 0
        records = [self._load(info.key) for info in self._list("chosen/")]
        named = {file.key for record in records if record is not None for file in record.files}
        orphans = [key for key in old if key not in named]
        self._delete(orphans)
        return len(orphans)

    # The store

    def _load(self, key: str) -> Record | None:
        data = background().run(self._retrying.find(key, _RECORD_BYTES_MAX))
        return None if data is None else load_record(data, key)

    def _list(self, prefix: str) -> list[ObjectInfo]:
        async def listed() -> list[ObjectInfo]:
            return [info async for info in self._retrying.list_objects(prefix)]

        return background().run(listed())

    def _delete(self, keys: Sequence[str]) -> None:
        if keys:
            background().run(self._retrying.delete(keys))


def _chosen(batch: Batch) -> str:
    return f"chosen/{batch.writer}/{batch.number:020}.json"


def _done(batch: Batch) -> str:
    return f"done/{batch.writer}/{batch.number:020}.json"


def _number(key: str) -> int:
    return int(key.rpartition("/")[2].removesuffix(".json"))
