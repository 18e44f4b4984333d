"""The folded state of a broker: topics, routers, the clock, and the numbers that must never repeat."""

from __future__ import annotations

from bisect import insort
from itertools import islice
from operator import attrgetter
from typing import Final

from pyroaring import BitMap

from tenure.contract.config import TopicConfig
from tenure.contract.names import check_topic_name
from tenure.core.state.lease import Ended
from tenure.core.state.lease_table import EPOCH_SHIFT
from tenure.core.state.pending_base import PendingBase
from tenure.core.state.queue import NEVER, Queue
from tenure.core.state.router import Router
from tenure.core.state.topic import Topic
from tenure.errors import Conflict, NotFound
from tenure.settings import Settings

__all__ = ["State"]

DEFAULT = TopicConfig()
_KEYED_LOOKS_MAX: Final = 1_000
"""How many topics are looked at for idempotency keys that have expired."""


class State:
    """One plain mutable object that only ``fold`` changes.

    ``orphans`` are topics met in a replay before their base came: they only collect where frames lie;
    ``bases_begun`` has those of them whose base has begun to come. ``holders``
    says which topics have frames or their base in a segment. ``wall_queues`` are the topics with jobs that wait for the
    wall clock, ``begun_queues`` those with jobs that were begun, or had some. ``jobs`` counts the live records of all
    queues. ``retired`` are names of deleted topics that only a put
    may make again. ``keyed`` are the topics that hold idempotency keys, those first that were looked at longest ago.

    Not folded: ``settings`` are the limits that decisions keep to. ``features`` are the names of the log's features
    that are on: a decision returns what one of them covers only then. ``appended_bytes`` and ``synced_bytes`` count
    payload since the log was opened, and ``must_check_limits`` means that appends must check the limits of the whole
    broker. ``expired`` counts the jobs whose lease ran out, ``lost`` those that were lost. ``changed_topics`` collects
    the topics on which time has passed, and ``ended`` the leases that ran out; None where no caller takes them.
    ``behind`` are the topics, in the order in which that was noticed, that have more to end or to evict than one step
    of ``step_jobs_max`` jobs does; 0 is a step of any length. On those that are ``awaited`` time passes only as far as
    the commands that wait there have come.
    """

    __slots__ = (
        "_names",
        "_names_of",
        "appended_bytes",
        "awaited",
        "bases_begun",
        "begun_queues",
        "behind",
        "boot_id",
        "boot_ms",
        "by_id",
        "changed_topics",
        "ended",
        "epoch",
        "expired",
        "features",
        "has_home",
        "holders",
        "idempotency_keys",
        "jobs",
        "keyed",
        "leases_given",
        "live_bytes",
        "log_ms",
        "lost",
        "must_check_limits",
        "next_topic_id",
        "opened_ms",
        "orphans",
        "retired",
        "routers",
        "routers_from",
        "settings",
        "step_jobs_max",
        "synced_bytes",
        "topics",
        "wall_offset_ms",
        "wall_queues",
    )

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.has_home = False
        self.features: frozenset[str] = frozenset()
        self.epoch = 0
        self.boot_id = ""
        self.boot_ms = 0
        self.opened_ms = 0
        self.log_ms = 0
        self.wall_offset_ms = 0
        self.next_topic_id = 1
        self.leases_given = 0
        self.live_bytes = 0
        self.jobs = 0
        self.idempotency_keys = 0
        self.keyed: dict[Topic, None] = {}
        self.topics: dict[str, Topic] = {}
        self.by_id: dict[int, Topic] = {}
        self.orphans: dict[int, Topic] = {}
        self.bases_begun: dict[int, PendingBase] = {}
        self.holders: dict[int, BitMap] = {}
        self.retired: set[str] = set()
        self.routers: dict[str, Router] = {}
        self.routers_from: dict[str, list[Router]] = {}
        self.wall_queues: set[int] = set()
        self.begun_queues: set[int] = set()
        self.appended_bytes = self.synced_bytes = 0
        self.must_check_limits = False
        self.expired = self.lost = 0
        self.changed_topics: set[Topic] | None = None
        self.ended: list[tuple[Topic, Ended]] | None = None
        self.behind: dict[Topic, None] = {}
        self.awaited: set[Topic] = set()
        self.step_jobs_max = 0
        self._names: list[str] = []
        self._names_of = (0, 0)

    @property
    def unsynced_bytes(self) -> int:
        """Return the payload bytes that were appended and are not yet durable."""
        return self.appended_bytes - self.synced_bytes

    def sorted_names(self) -> list[str]:
        """Return the names of all topics in order; sorted again only after one came or went."""
        names_of = (len(self.topics), self.next_topic_id)
        if self._names_of != names_of:
            self._names, self._names_of = sorted(self.topics), names_of
        return self._names

    @property
    def next_lease(self) -> int:
        """Return the number for the next lease.

        The epoch is durable before any claim, so a lost event cannot make one repeat.
        """
        return self.epoch << EPOCH_SHIFT | self.leases_given + 1

    def find(self, name: object) -> Topic | None:
        """Return the topic of that name, or None; also None for a value that is not a string."""
        return self.topics.get(name) if isinstance(name, str) else None

    def topic(self, name: str) -> Topic:
        """Return the topic of that name. Raises NotFound where there is none, Invalid for an illegal name."""
        topic = self.find(name)
        if topic is None:
            check_topic_name(name)
            raise NotFound(f"no topic {name!r}: create it or append to it first", code="topic_not_found", topic=name)
        return topic

    def queue(self, name: str) -> tuple[Topic, Queue]:
        """Return the topic of that name and its queue. Raises as `topic`, and Conflict where it is a plain log."""
        topic = self.topics.get(name) if name.__class__ is str else None
        if topic is None:
            topic = self.topic(name)
        queue = topic.queue
        if queue is None:
            raise _not_a_queue(topic)
        return topic, queue

    def add_topic(self, topic: Topic) -> None:
        """Add a topic and its counts."""
        self.topics[topic.name] = topic
        self.by_id[topic.id] = topic
        self.next_topic_id = max(self.next_topic_id, topic.id + 1)
        self.note_holder(topic.base, topic.id)
        self.live_bytes += topic.bytes
        self.jobs += topic.count if topic.queue is not None else 0
        if topic.keys is not None:
            self.idempotency_keys += len(topic.keys)
            self.keyed[topic] = None
        if topic.queue is not None and topic.queue.suspects.begun:
            self.begun_queues.add(topic.id)
        if topic.queue is not None and topic.queue.delays.by_wall:
            self.wall_queues.add(topic.id)
            topic.queue.plan(self.wall_offset_ms)

    def remove_topic(self, topic: Topic) -> None:
        """Remove a topic and its counts."""
        del self.topics[topic.name]
        del self.by_id[topic.id]
        self.wall_queues.discard(topic.id)
        self.begun_queues.discard(topic.id)
        self.behind.pop(topic, None)
        self.live_bytes -= topic.bytes
        self.jobs -= topic.count if topic.queue is not None else 0
        if topic.keys is not None:
            self.idempotency_keys -= len(topic.keys)
            del self.keyed[topic]
        for segment in {topic.base, *(entry.segment for entry in topic.frame_index)}:
            self.holders.get(segment, BitMap()).discard(topic.id)

    def orphan(self, topic_id: int) -> Topic:
        """Return the stand-in for a topic whose base comes later in the log."""
        if topic_id not in self.orphans:
            self.orphans[topic_id] = Topic(topic_id, "", DEFAULT)
        return self.orphans[topic_id]

    def note_holder(self, segment: int, topic_id: int) -> None:
        """Note that a segment holds frames or the base of a topic, so trimming must carry them."""
        holders = self.holders.get(segment)
        if holders is None:
            holders = self.holders[segment] = BitMap()
        holders.add(topic_id)

    def forget_segments(self, oldest: int) -> None:
        """Forget what lay in segments before the oldest one that exists.

        Frames without a live record are not mentioned when their segment goes, so a checkpoint from before still has
        them.
        """
        for segment in [segment for segment in self.holders if segment < oldest]:
            for topic_id in self.holders.pop(segment):
                topic = self.by_id.get(topic_id)
                if topic is not None:
                    topic.frame_index = [entry for entry in topic.frame_index if entry.segment >= oldest]

    def advance(self, topic: Topic, now_ms: int) -> bool:
        """Let log time pass on one topic by one step; return whether it has reached ``now_ms``.

        On a topic that is awaited it does not pass: what the commands that wait there are about must not end before
        they are judged.
        """
        queue = topic.queue
        if queue is None or now_ms < queue.next_change_ms:
            return True
        return topic not in self.awaited and self.step_time(topic, now_ms)

    def step_time(self, topic: Topic, now_ms: int) -> bool:
        """Let log time pass by one step, also on a topic that is awaited; return whether it has reached ``now_ms``."""
        queue = topic.queue
        if queue is None or now_ms < queue.next_change_ms:
            return True
        self.pass_time(topic, now_ms, jobs_max=self.step_jobs_max)
        if now_ms < queue.next_change_ms:
            return True
        self.behind[topic] = None
        return False

    def pass_time(self, topic: Topic, now_ms: int, *, jobs_max: int = 0) -> None:
        """Let log time reach ``now_ms`` on one topic: leases and delays whose time has come end.

        A fold ends them all. With ``jobs_max`` the pass stops after about so many jobs. No event of a queue is logged
        before all of its past is folded, so a replay ends the same leases in the same order.
        """
        queue = topic.queue
        if queue is None or now_ms < queue.next_change_ms:
            return
        ended: list[Ended] | None = None if self.ended is None else []
        backoff, expired, lost = topic.config.retry_backoff, queue.expired, queue.lost
        lowest = queue.pass_time(
            now_ms,
            wall_offset_ms=self.wall_offset_ms,
            backoff=backoff,
            epoch=self.epoch,
            ended=ended,
            jobs_max=jobs_max,
        )
        self.expired += queue.expired - expired
        self.lost += queue.lost - lost
        if self.changed_topics is not None:
            self.changed_topics.add(topic)
        if not queue.delays.by_wall:
            self.wall_queues.discard(topic.id)
        if lowest is not NEVER:
            topic.evict_from = min(topic.evict_from, lowest)
        if ended:
            assert self.ended is not None
            self.ended += [(topic, lease) for lease in ended]

    def expire_keys(self, now_ms: int) -> int:
        """Forget the idempotency keys whose time has passed, on the topics that were looked at longest ago; returns how
        many are left.
        """
        for topic in list(islice(self.keyed, _KEYED_LOOKS_MAX)):
            self.expire_keys_of(topic, now_ms)
            del self.keyed[topic]
            self.keyed[topic] = None
        return self.idempotency_keys

    def expire_keys_of(self, topic: Topic, now_ms: int) -> int:
        """Forget a topic's idempotency keys whose time has passed; returns how many are left of them."""
        if topic.keys is None:
            return 0
        self.idempotency_keys -= topic.keys.expire(now_ms)
        return len(topic.keys)

    def index_routers(self) -> None:
        """Rebuild the list of routers by source."""
        self.routers_from = {}
        for name in sorted(self.routers):
            self.add_router(self.routers[name])

    def add_router(self, router: Router) -> None:
        """Add a router, also to those of its source, which are in the order of their names."""
        self.routers[router.name] = router
        insort(self.routers_from.setdefault(router.source, []), router, key=attrgetter("name"))

    def remove_router(self, name: str) -> Router | None:
        """Remove a router and return it, or None where there is none of that name."""
        router = self.routers.pop(name, None)
        if router is not None:
            beside = self.routers_from[router.source]
            beside.remove(router)
            if not beside:
                del self.routers_from[router.source]
        return router


def _not_a_queue(topic: Topic) -> Conflict:
    hint = "put it with type queue first, and its records become jobs" if topic.implicit else "use another topic"
    return Conflict(f"{topic.name!r} is a log, and claims need a queue: {hint}", code="not_a_queue", topic=topic.name)
