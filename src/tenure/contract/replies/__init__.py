"""Replies: each answer of the contract once. The broker returns these, the server writes them, and clients decode them.

Times are wall clock in milliseconds. A decoder ignores unknown fields, so a newer server can send more. ``data`` and
``meta`` are JSON text as it was given: bytes where the broker returns the stored record (`Grant`, `Difference`), and
`msgspec.Raw` elsewhere, which the caller decodes (``msgspec.json.decode(job.data, type=Email)``).
"""

from __future__ import annotations

from tenure.contract.replies.cluster import ClusterInfo, MemberInfo
from tenure.contract.replies.jobs import Claimed, Delivery, Grant, Job, JobInfo, JobPage, JobRow
from tenure.contract.replies.leases import (
    BegunJob,
    EndedNode,
    Extended,
    HelloReply,
    LeasePage,
    LeaseRow,
    Redriven,
    Settled,
)
from tenure.contract.replies.queues import Distribution, QueueMeters, QueueStrip, StripLease, WorstJob
from tenure.contract.replies.records import DeletedRecords, Diff, Difference, Produced, ReadRecord, Tombstone
from tenure.contract.replies.streams import CaughtUp, Gap, Lifecycle, Records, TopicDeleted
from tenure.contract.replies.topics import (
    BackoffInfo,
    ConfigInfo,
    DeletedTopic,
    Health,
    Page,
    PutTopic,
    QueueCounts,
    Ready,
    RouterInfo,
    RouterPage,
    TopicInfo,
    TopicPage,
)
from tenure.contract.replies.upgrade import FeatureInfo, UpgradeStatus

__all__ = [
    "BackoffInfo",
    "BegunJob",
    "CaughtUp",
    "Claimed",
    "ClusterInfo",
    "ConfigInfo",
    "DeletedRecords",
    "DeletedTopic",
    "Delivery",
    "Diff",
    "Difference",
    "Distribution",
    "EndedNode",
    "Extended",
    "FeatureInfo",
    "Gap",
    "Grant",
    "Health",
    "HelloReply",
    "Job",
    "JobInfo",
    "JobPage",
    "JobRow",
    "LeasePage",
    "LeaseRow",
    "Lifecycle",
    "MemberInfo",
    "Page",
    "Produced",
    "PutTopic",
    "QueueCounts",
    "QueueMeters",
    "QueueStrip",
    "ReadRecord",
    "Ready",
    "Records",
    "Redriven",
    "RouterInfo",
    "RouterPage",
    "Settled",
    "StripLease",
    "Tombstone",
    "TopicDeleted",
    "TopicInfo",
    "TopicPage",
    "UpgradeStatus",
    "WorstJob",
]
