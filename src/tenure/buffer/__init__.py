"""The buffer: byte entries become durable batches on object storage, in one order, for one fenced consumer per group.

Producers keep no state; a manifest of small numbered deltas orders their batches; exactly once where the sink stores
data and sequence together. ``docs/design/buffer.md`` says why it is safe.
"""

from tenure.buffer.batch import Batch, Descriptor, Range
from tenure.buffer.collector import Collected, Collector
from tenure.buffer.consumer import Consumer
from tenure.buffer.fetch import FetchHandle
from tenure.buffer.groups import GroupStat, drop_group, groups
from tenure.buffer.ingest import Ingest
from tenure.buffer.ingest_settings import IngestSettings
from tenure.buffer.inspect import BufferStat, Finding, dump, entries, stat, verify
from tenure.buffer.lag import Lag
from tenure.buffer.metrics import BufferMetrics
from tenure.buffer.pending import Position, WriteHandle
from tenure.buffer.producer import Producer
from tenure.buffer.quarantine import Quarantined, quarantine
from tenure.buffer.retention import Kept, ask_retention, set_retention
from tenure.buffer.settings import BufferSettings
from tenure.buffer.sink_delta import ArrowDeltaSink
from tenure.buffer.sink_sqlite import SqliteSink
from tenure.buffer.sinks import Commit, Outcome, Sink, Written
from tenure.buffer.store import (
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    OutcomeUnknown,
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
