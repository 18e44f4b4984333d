"""What the server answers, as Structs. Unknown fields are ignored, so a newer server can say more.

``data`` and ``meta`` are `msgspec.Raw`: JSON text as it was given, decoded by whoever wants it
(``msgspec.json.decode(job.data, type=Email)``).
"""

from __future__ import annotations

from tenure.client.replies.jobs import (
    Claimed,
    Delivery,
    Job,
    JobInfo,
    JobPage,
    JobRow,
    LeasePage,
)
from tenure.client.replies.records import Diff, ReadRecord, Tombstone
from tenure.client.replies.streams import CaughtUp, Gap, Lifecycle, Records, TopicDeleted
from tenure.client.replies.topics import (
    DeletedTopic,
    Health,
    PutTopic,
    Ready,
    RouterInfo,
    RouterPage,
    TopicPage,
)
from tenure.contract.replies import (
    DeletedRecords,
    Extended,
    LeaseRow,
    Produced,
    QueueCounts,
    Redriven,
    Settled,
    TopicInfo,
)

__all__ = [
    "CaughtUp",
    "Claimed",
    "DeletedRecords",
    "DeletedTopic",
    "Delivery",
    "Diff",
    "Extended",
    "Gap",
    "Health",
    "Job",
    "JobInfo",
    "JobPage",
    "JobRow",
    "LeasePage",
    "LeaseRow",
    "Lifecycle",
    "Produced",
    "PutTopic",
    "QueueCounts",
    "ReadRecord",
    "Ready",
    "Records",
    "Redriven",
    "RouterInfo",
    "RouterPage",
    "Settled",
    "Tombstone",
    "TopicDeleted",
    "TopicInfo",
    "TopicPage",
]
