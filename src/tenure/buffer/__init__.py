"""The buffer: durable batches of byte entries on object storage, in one order, with one fenced consumer per group.

Producers keep no state. A manifest of small numbered deltas orders their batches. Delivery is exactly once where the
sink stores data and sequence together. ``docs/design/buffer.md`` gives the proof.
"""

from tenure.buffer.batch.fetch import FetchHandle
from tenure.buffer.batch.format import Batch, Descriptor, Range
from tenure.buffer.collecting.collector import Collected, Collector
from tenure.buffer.collecting.quarantine import Quarantined, quarantine
from tenure.buffer.collecting.retention import Kept, ask_retention, set_retention
from tenure.buffer.ingest.delta import ArrowDeltaSink
from tenure.buffer.ingest.ingest import Ingest, IngestSettings
from tenure.buffer.ingest.sink import Commit, Outcome, Sink, Written
from tenure.buffer.ingest.sqlite import SqliteSink
from tenure.buffer.inspect import BufferStat, Finding, dump, entries, stat, verify
from tenure.buffer.manifest.groups import GroupStat, drop_group, groups
from tenure.buffer.metrics import BufferMetrics
from tenure.buffer.reading.consumer import Consumer
from tenure.buffer.reading.lag import Lag
from tenure.buffer.settings import BufferSettings
from tenure.buffer.writing.pending import Position, WriteHandle
from tenure.buffer.writing.producer import Producer
from tenure.objects.store import (
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    OutcomeUnknown,
    StoreFull,
    StoreRefused,
    open_store,
)

__all__ = [
    "ArrowDeltaSink",
    "Batch",
    "BufferMetrics",
    "BufferSettings",
    "BufferStat",
    "Collected",
    "Collector",
    "Commit",
    "Consumer",
    "Descriptor",
    "FetchHandle",
    "Finding",
    "GroupStat",
    "Ingest",
    "IngestSettings",
    "Kept",
    "Lag",
    "ObjectExists",
    "ObjectInfo",
    "ObjectMissing",
    "ObjectStore",
    "Outcome",
    "OutcomeUnknown",
    "Position",
    "Producer",
    "Quarantined",
    "Range",
    "Sink",
    "SqliteSink",
    "StoreFull",
    "StoreRefused",
    "WriteHandle",
    "Written",
    "ask_retention",
    "drop_group",
    "dump",
    "entries",
    "groups",
    "open_store",
    "quarantine",
    "set_retention",
    "stat",
    "verify",
]
