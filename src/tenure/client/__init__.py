"""Clients: `Client` for plain code, `AsyncClient` for an event loop; the same calls on both."""

from tenure.client.acker import Acker
from tenure.client.blocking_producer import Producer
from tenure.client.client import AsyncClient, Client
from tenure.client.feed import AsyncFeed, Feed
from tenure.client.held_job import HeldJob
from tenure.client.lease import AsyncLease, Lease
from tenure.client.producer import AsyncProducer
from tenure.client.queue import AsyncQueue, Queue
from tenure.client.replies import (
    CaughtUp,
    Claimed,
    Diff,
    Extended,
    Gap,
    Job,
    JobInfo,
    Lifecycle,
    Produced,
    ReadRecord,
    Records,
    Settled,
    Tombstone,
    TopicDeleted,
    TopicInfo,
)
from tenure.client.settings import ClientSettings
from tenure.client.watch import WatchEvent
from tenure.client.wire import AsyncWire, Request, Response, Wire, WireError

__all__ = [
    "Acker",
    "AsyncClient",
    "AsyncFeed",
    "AsyncLease",
    "AsyncProducer",
    "AsyncQueue",
    "AsyncWire",
    "CaughtUp",
    "Claimed",
    "Client",
    "ClientSettings",
    "Diff",
    "Extended",
    "Feed",
    "Gap",
    "HeldJob",
    "Job",
    "JobInfo",
    "Lease",
    "Lifecycle",
    "Produced",
    "Producer",
    "Queue",
    "ReadRecord",
    "Records",
    "Request",
    "Response",
    "Settled",
    "Tombstone",
    "TopicDeleted",
    "TopicInfo",
    "WatchEvent",
    "Wire",
    "WireError",
]
