"""The broker in process: `Broker`, and every type that its calls take and return.

`Broker.run` takes the commands of `tenure.contract.commands`; every other call builds its command itself. The replies
are the Structs that the client decodes; a claim and a read return records as they are stored. A data
directory, a disk or a log for `Broker.open` comes from `tenure.log`.
"""

from __future__ import annotations

from tenure.broker.answer import Answer, OpenAnswer
from tenure.broker.broker import Broker
from tenure.broker.observing.metrics import Metrics
from tenure.broker.serving.streams import Subscription, WorkStream
from tenure.contract.bounds import Bounds
from tenure.contract.commands import Command
from tenure.contract.options import AppendOptions, ClaimOptions, LeaseOptions, RedriveOptions, RouterOptions
from tenure.contract.records import Record, Stored
from tenure.contract.repeat import Repeat
from tenure.contract.replies import (
    BackoffInfo,
    BegunJob,
    ConfigInfo,
    DeletedRecords,
    Delivery,
    Difference,
    Distribution,
    EndedNode,
    Extended,
    FeatureInfo,
    Grant,
    JobInfo,
    JobRow,
    LeaseRow,
    Lifecycle,
    Page,
    Produced,
    QueueCounts,
    QueueMeters,
    QueueStrip,
    Redriven,
    Settled,
    StripLease,
    Tombstone,
    TopicInfo,
    UpgradeStatus,
    WorstJob,
)
from tenure.contract.share import Share, Unsynced
from tenure.core.state.router import Router
from tenure.core.tag_match import Match
from tenure.histogram import Histogram
from tenure.log.recovery import RecoveryReport

__all__ = [
    "Answer",
    "AppendOptions",
    "BackoffInfo",
    "BegunJob",
    "Bounds",
    "Broker",
    "ClaimOptions",
    "Command",
    "ConfigInfo",
    "DeletedRecords",
    "Delivery",
    "Difference",
    "Distribution",
    "EndedNode",
    "Extended",
    "FeatureInfo",
    "Grant",
    "Histogram",
    "JobInfo",
    "JobRow",
    "LeaseOptions",
    "LeaseRow",
    "Lifecycle",
    "Match",
    "Metrics",
    "OpenAnswer",
    "Page",
    "Produced",
    "QueueCounts",
    "QueueMeters",
    "QueueStrip",
    "Record",
    "RecoveryReport",
    "RedriveOptions",
    "Redriven",
    "Repeat",
    "Router",
    "RouterOptions",
    "Settled",
    "Share",
    "Stored",
    "StripLease",
    "Subscription",
    "Tombstone",
    "TopicInfo",
    "Unsynced",
    "UpgradeStatus",
    "WorkStream",
    "WorstJob",
]
