"""The broker in process: `Broker`, and every type that its calls take and return.

`Broker.run` takes the commands of `tenure.contract.commands`; every other call builds its command itself. The replies
are the Structs that the client decodes, apart from jobs and records, which are here as they are stored. A data
directory, a disk or a log for `Broker.open` comes from `tenure.log`.
"""

from __future__ import annotations

from tenure.broker.answer import Answer
from tenure.broker.broker import Broker
from tenure.broker.observing.metrics import Histogram, Metrics
from tenure.broker.serving.streams import Subscription, WorkStream
from tenure.contract.commands import Claim, Command
from tenure.contract.records import Record, Stored
from tenure.contract.replies import (
    DeletedRecords,
    Difference,
    Extended,
    Grant,
    Page,
    Produced,
    Redriven,
    Settled,
    Tombstone,
    TopicInfo,
)
from tenure.contract.share import Share
from tenure.core.lifecycle import Lifecycle
from tenure.core.state.router import Router
from tenure.core.tag_match import Match
from tenure.log.recovery import RecoveryReport

__all__ = [
    "Answer",
    "Broker",
    "Claim",
    "Command",
    "DeletedRecords",
    "Difference",
    "Extended",
    "Grant",
    "Histogram",
    "Lifecycle",
    "Match",
    "Metrics",
    "Page",
    "Produced",
    "Record",
    "RecoveryReport",
    "Redriven",
    "Router",
    "Settled",
    "Share",
    "Stored",
    "Subscription",
    "Tombstone",
    "TopicInfo",
    "WorkStream",
]
