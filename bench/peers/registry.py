"""Every peer by name: where its module is, and which groups of cells it takes part in."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import msgspec

__all__ = ["PEERS", "TASK_PEERS", "Peer", "chosen"]

ALL: Final = frozenset({"produce", "claim", "both", "concurrent", "latency", "million"})


class Peer(msgspec.Struct, frozen=True):
    """One row of the tables."""

    name: str
    title: str
    module: str
    service: str
    """The class of its server; peers that name the same one share it."""
    queue: str
    groups: frozenset[str] = ALL
    probe: str = ""
    """The class that asks a restarted server, where it is not ``queue``: one that repeats nothing by itself."""

    @property
    def service_key(self) -> str:
        """The server that it shares."""
        return f"{self.module}.{self.service}"

    def load(self, kind: str) -> Any:
        """Import its module and return its class of that kind, ``service``, ``queue`` or ``probe``."""
        return getattr(import_module(f"bench.peers.{self.module}"), getattr(self, kind) or self.queue)


_TASKS: Final = frozenset({"tasks", "idle"})

PEERS: Final = (
    Peer("tenure", "Tenure, `Client`", "queues.tenure", "TenureService", "TenureClient", probe="TenureSocket"),
    Peer(
        "tenure-durable",
        "Tenure, `Client`, `leases_durable`",
        "queues.tenure",
        "TenureService",
        "TenureDurable",
        frozenset({"claim", "both", "latency"}),
    ),
    Peer(
        "tenure-socket",
        "Tenure, bare socket",
        "queues.tenure",
        "TenureService",
        "TenureSocket",
        frozenset({"produce", "claim", "both"}),
    ),
    Peer(
        "tenure-producer",
        "Tenure, gathering producer",
        "queues.tenure",
        "TenureService",
        "TenureProducer",
        frozenset({"concurrent"}),
    ),
    Peer("redis-stream", "Redis stream", "queues.redis", "RedisService", "RedisStream"),
    Peer("redis-list", "Redis list", "queues.redis", "RedisService", "RedisList"),
    Peer("postgres-delete", "PostgreSQL, delete in a transaction", "queues.postgres", "PostgresService", "Delete"),
    Peer("postgres-timeout", "PostgreSQL, visibility timeout", "queues.postgres", "PostgresService", "Timeout"),
    Peer("jetstream", "NATS JetStream", "queues.jetstream", "NatsService", "JetStream"),
    Peer("rabbitmq-quorum", "RabbitMQ, quorum queue", "queues.rabbitmq", "RabbitService", "Quorum"),
    Peer("rabbitmq-classic", "RabbitMQ, classic queue", "queues.rabbitmq", "RabbitService", "Classic"),
    Peer("beanstalkd", "beanstalkd", "queues.beanstalkd", "BeanstalkdService", "Beanstalkd"),
)

TASK_PEERS: Final = (
    Peer("tenure-worker", "Tenure, `App`", "queues.tenure", "TenureService", "tenure", _TASKS),
    Peer("celery", "Celery on Redis", "queues.redis", "RedisService", "celery", _TASKS),
    Peer("dramatiq", "dramatiq on Redis", "queues.redis", "RedisService", "dramatiq", _TASKS),
    Peer("rq", "RQ on Redis", "queues.redis", "RedisService", "rq", _TASKS),
    Peer("taskiq", "taskiq on Redis streams", "queues.redis", "RedisService", "taskiq", _TASKS),
    Peer("procrastinate", "procrastinate on PostgreSQL", "queues.postgres", "PostgresService", "procrastinate", _TASKS),
)


def chosen(only: list[str]) -> list[Peer]:
    """Return the peers whose name is, or starts with, one of ``only``; all of them where it is empty.

    Raises SystemExit for a word that names none, with the names there are.
    """
    everyone = [*PEERS, *TASK_PEERS]
    for word in only:
        if not any(_named(peer, word) for peer in everyone):
            names = ", ".join(peer.name for peer in everyone)
            raise SystemExit(f"bench: no peer is called {word!r}; there are {names}")
    return [peer for peer in everyone if not only or any(_named(peer, word) for word in only)]


def _named(peer: Peer, word: str) -> bool:
    return peer.name == word or peer.name.startswith(f"{word}-")
