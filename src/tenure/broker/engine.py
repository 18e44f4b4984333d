"""The engine: decide → append → fold, synchronously. No asyncio, no threads: the broker adds those around it.

``run`` is the only writer for commands. Events go to the log first, then through ``fold``: a full disk is met by the
append, before anything was folded. An answer waits for the batch that its events joined.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from tenure.broker.answer import Answer, Durability
from tenure.broker.clock_reading import read_both
from tenure.broker.newest_checkpoint import newest_state
from tenure.broker.observing.meters import Meters
from tenure.broker.observing.metrics import Metrics
from tenure.broker.observing.pins import Pin
from tenure.broker.observing.tally import TALLIES
from tenure.broker.records import Reader
from tenure.broker.stepping import Stepping
from tenure.broker.warm_state import Warm
from tenure.clock import Clock
from tenure.contract.bounds import Bounds
from tenure.contract.commands import Command
from tenure.contract.config import SYNCED
from tenure.contract.names import check_topic_name
from tenure.contract.replies import Grant, QueueMeters, Redriven
from tenure.core.decide.decision import Behind, Decided, Pass, Refused, Step
from tenure.core.decide.holding import keep_held
from tenure.core.decide.table import BOUNDED, DECIDES, PASSES
from tenure.core.events import (
    KIND_OF,
    URGENT,
    Appended,
    ClockSet,
    Event,
    Opened,
    StateCarried,
    TopicPut,
    decode,
    encode,
    kind_of,
)
from tenure.core.feature_off import feature_off
from tenure.core.fold import FOLDS, fold
from tenure.core.fold.clock import end_epoch
from tenure.core.state.lease import Ended
from tenure.core.state.snapshot import dump_checkpoint, dump_state
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.errors import Closed, Corrupt, Overloaded
from tenure.log.features import FeatureSet
from tenure.log.interface import Frame, Log, Position
from tenure.settings import Settings

__all__ = ["WALL_TOLERANCE_MS", "Engine", "Listener", "Outcome"]

logger = logging.getLogger("tenure.broker")

WALL_TOLERANCE_MS = 20
"""How far the wall clock may drift from log time before the difference is logged again."""

_LOOKED_AT_FROM: Final = 8
"""While less than this part of `pending_bytes_max` waits for a sync, no append looks at it, and no share counts it."""

_RESERVED_WITH: Final = 7
"""Room is reserved for eight jobs at a time: for each one alone it would be reckoned up at every write."""

Listener = Callable[[Event], None]
"""Called with every event before it is folded, while the state still shows what the event is about to change."""

T = TypeVar("T")
Outcome = Answer[T] | Behind | Refused
"""What a command comes to: its answer, or that there is none yet."""
_PLANS: Final = {event: (kind, event in URGENT, TALLIES.get(event), FOLDS[event]) for event, kind in KIND_OF.items()}
"""The kind of an event's frame, whether it may use the reserved room of a full disk, its tally, and its fold."""


class _KindsOn(dict[type[Event], tuple[int, bool]]):
    """The kind of each event that may be logged, and whether it is urgent; one whose feature is off raises Conflict."""

    def __init__(self, features: FeatureSet) -> None:
        self._off = features.kinds_off()
        super().__init__({event: plan[:2] for event, plan in _PLANS.items() if plan[0] not in self._off})

    def __missing__(self, event: type[Event]) -> NoReturn:
        raise feature_off(self._off[KIND_OF[event]].name)


class Engine:
    """The state and the log, kept in step. One owner, one thread; every method is synchronous.

    ``changed_topics`` are topics on which something may have become claimable or readable since the broker last looked.
    ``stalled_routers`` are the sources of routers that wait for room in their destination, by its name.
    ``rewritten_bytes`` and ``dropped_bytes`` count what trimming has moved and freed since the log was opened;
    ``fruitless_bytes`` counts what it has moved since ``trimmed_live_bytes`` were alive, when it may gain nothing.
    ``spent_below`` is a segment and a topic id below which no topic has a live record in that segment.
    """

    def __init__(self, log: Log, *, clock: Clock, settings: Settings) -> None:
        self.log = log
        self.clock = clock
        self.settings = settings
        self.state = State(settings)
        self.totals = Metrics()
        self.meters = Meters()
        self.reader = Reader(log, settings.frame_cache_bytes)
        self.durability: Durability | None = None
        self.pin: Pin | None = None
        self.listeners: list[Listener] = []
        self.changed_topics: set[Topic] = set()
        self.stalled_routers: dict[str, set[str]] = {}
        self._frames = 0
        self.turn_ms = 0
        self.last_now_ms = 0
        self.losses_marked = 0
        self.synced_batch = 0
        self.log_bytes = 0
        self.rewritten_bytes = 0
        self.dropped_bytes = 0
        self.fruitless_bytes = 0
        self.trimmed_live_bytes = 0
        self.spent_below = (0, 0)
        self._unsynced: deque[tuple[int, int, dict[int, int]]] = deque()
        self._heads: dict[int, int] = {}
        self._heads_batch = 0
        self._reserved_jobs = -1
        self._log_offset_ms = 0
        self._kinds = _KindsOn(log.features)
        log.preamble = self.preamble

    # Opening

    def recover(
        self,
        checkpoints: Iterable[tuple[Position, bytes]] = (),
        *,
        watch: Callable[[Iterator[Frame]], Iterator[Frame]] = iter,
        warm: Warm | None = None,
    ) -> None:
        """Rebuild the state from a warm one, from the newest usable checkpoint, or from nothing, and from the log after
        it; then open for writing. The frames pass through ``watch``, which may count them.
        """
        found = newest_state(checkpoints, self.log.contains) if warm is None else (warm.state, warm.position)
        self.state, after = found or (self.state, None)
        state = self.state
        state.settings, state.has_home = self.settings, self.log.has_home
        state.features = self.log.features.names
        for kind, _, location, body in watch(self.log.replay(after)):
            fold(state, decode(kind, body), location)
        if state.orphans:
            raise Corrupt(
                f"topics {sorted(state.orphans)[:5]} have records but were never declared: the log misses a part",
                topics=sorted(state.orphans)[:100],
            )
        state.forget_segments(self.log.segments()[0].number)
        self._reserve()
        for topic in state.by_id.values():
            topic.durable_seq = topic.head_seq
        state.expired, state.lost, state.changed_topics = 0, 0, self.changed_topics
        self._plan_limit_checks()
        self._start_clock(warm)
        self.losses_marked = state.lost

    def _start_clock(self, warm: Warm | None) -> None:
        """Continue log time: by the machine's uptime where the last one to open the log ran on it and it has not
        rebooted since, or as it was followed, else by the wall clock, and never backwards. Who followed needs no clock
        that agrees with the last leader's.
        """
        state, (boot_ms, wall_ms) = self.state, read_both(self.clock)
        if not state.epoch:
            now_ms = wall_ms
        elif state.boot_id == self.clock.boot_id:
            now_ms = max(state.opened_ms + boot_ms - state.boot_ms, state.log_ms)
        elif warm is not None and warm.log_ms:
            now_ms = self._after_pause(warm.log_ms + boot_ms - warm.boot_ms, "the clock of the log's home")
        else:
            now_ms = self._after_pause(wall_ms - state.wall_offset_ms, "the wall clock")
        self._log_offset_ms, self.log.log_ms = now_ms - boot_ms, self.clock_ms
        end_epoch(state)
        self.rewrite(Opened(now_ms, self.log.epoch, self.clock.boot_id, boot_ms, wall_ms - now_ms))
        if self.log.has_home:  # a sync is a request to a store: the epoch is durable, and this goes with the next link
            self.log.write()
        else:
            self.log.sync()
        self.synced_batch = self.log.synced_batch

    def _after_pause(self, now_ms: int, clock: str) -> int:
        """Return log time after a reboot, or on another machine, as a clock shows it and within a bound.

        A hardware clock that is wrong at boot would otherwise let every TTL, delay and window pass at once, and log
        time never goes back.
        """
        log_ms, limit = self.state.log_ms, self.settings.reboot_ms_max
        passed_ms = now_ms - log_ms
        if passed_ms > limit:
            logger.warning(
                "%s is %d s ahead of the log: only %d s are taken to have passed; check that clock",
                clock,
                passed_ms // 1000,
                limit // 1000,
            )
        return log_ms + min(max(passed_ms, 0), limit)

    def now(self) -> int:
        """Return log time. Where the wall clock has moved against it, log the new offset.

        While ``turn_ms`` is set, that is the time: the broker sets it for the rest of a turn of its loop, because
        everything in one turn happens at the same time.
        """
        if self.turn_ms:
            return self.turn_ms
        state, clock = self.state, self.clock
        now_ms, wall_ms = max(clock.boot_ms() + self._log_offset_ms, state.log_ms), clock.wall_ms()
        if not -WALL_TOLERANCE_MS <= wall_ms - now_ms - state.wall_offset_ms <= WALL_TOLERANCE_MS:
            now_ms = self._follow_wall()
        self.last_now_ms = now_ms
        return now_ms

    def _follow_wall(self) -> int:
        """Return log time, after logging a new offset of the wall clock where it has really moved."""
        boot_ms, wall_ms = read_both(self.clock)
        now_ms = max(boot_ms + self._log_offset_ms, self.state.log_ms)
        offset_ms = wall_ms - now_ms
        if abs(offset_ms - self.state.wall_offset_ms) > WALL_TOLERANCE_MS:
            self._set_clock(now_ms, offset_ms)
        return now_ms

    def clock_ms(self) -> int:
        """Return log time by the clock, not by ``turn_ms``: for timers."""
        return max(self.clock.boot_ms() + self._log_offset_ms, self.state.log_ms)

    def _set_clock(self, now_ms: int, wall_offset_ms: int) -> None:
        """Log a new offset of the wall clock. Where nothing can be logged keep the old one: reads must go on.

        Its fold lets time pass on the queues that wait for the wall clock; while one of them is behind, it waits.
        """
        state = self.state
        waiting = [state.by_id[topic_id] for topic_id in state.wall_queues]
        due = [topic for topic in waiting if topic.queue is not None and now_ms >= topic.queue.next_change_ms]
        if state.behind or state.awaited or not all(state.advance(topic, now_ms) for topic in due):
            return
        with suppress(Closed, Overloaded):
            self.commit(ClockSet(now_ms, wall_offset_ms))
            self.changed_topics.update(waiting)

    def mark_time(self) -> None:
        """Log the time, where there is room for it."""
        self._set_clock(self.now(), self.state.wall_offset_ms)

    def mark_losses(self) -> None:
        """Log the time after leases that isolate have run out: up to there a broker had the log open, and a replay
        judges them as this one did. Until ``losses_marked`` is what the state has lost, the state is ahead of the log.
        """
        state, now_ms = self.state, self.now()
        if state.log_ms < now_ms:
            self._set_clock(now_ms, state.wall_offset_ms)
        if state.log_ms >= now_ms:
            self.losses_marked = state.lost

    # Writing

    def run(self, command: Command[T], bounds: Bounds | None = None) -> Outcome[T]:
        """Let time pass on the topic of a command, decide it now, log its events in one batch, and fold them; return
        the answer, or why there is none yet.

        Raises the error of the decision or of the log; nothing has changed then.
        """
        kind, now_ms = command.__class__, self.turn_ms or self.now()
        waits = PASSES.get(kind)
        if waits is not None:
            name: Any = command.topic  # type: ignore[attr-defined]
            topic = self.state.topics.get(name) if name.__class__ is str else None
            if (
                topic is not None
                and (queue := topic.queue) is not None
                and now_ms >= queue.next_change_ms
                and not self.state.advance(topic, now_ms)
                and waits
            ):
                return Behind(topic)
        if bounds is None or kind not in BOUNDED:
            decided = DECIDES[kind](self.state, command, now_ms, self.reader)
        else:
            decided = DECIDES[kind](self.state, command, now_ms, self.reader, bounds)
        if isinstance(decided, tuple):
            events, reply, level = decided
            if events.__class__ in _PLANS:  # one event: most commands end here
                return Answer(reply, self.commit(events), level, self.durability)
        return self._finish(decided)

    def run_as_of(self, command: Command[T], came_ms: int) -> Outcome[T]:
        """Run a command by the time at which it came: its topic has caught up with that, and no further."""
        return self._finish(DECIDES[command.__class__](self.state, command, came_ms, self.reader))

    def begin(
        self, command: Command[T], bounds: Bounds | None = None, *, came_ms: int | None = None
    ) -> Stepping[T] | Outcome[T]:
        """Decide a command that may run in steps, and take none yet; return its outcome where it needs none. One that
        has waited for its topic is decided by the time at which it came.
        """
        kind, now_ms = command.__class__, came_ms or self.now()
        if came_ms is None and PASSES.get(kind):
            topic = self.state.find(command.topic)  # type: ignore[attr-defined]
            if topic is not None and not self.state.advance(topic, now_ms):
                return Behind(topic)
        rest = () if bounds is None or kind not in BOUNDED else (bounds,)
        decided: Decided[T] = DECIDES[kind](self.state, command, now_ms, self.reader, *rest)
        return self._finish(decided) if isinstance(decided, (tuple, Refused)) else self._stepping(decided)

    def carry_out(self, decided: Decided[T]) -> Answer[T]:
        """Log and fold what was decided, all steps of it, and return the answer; it is known to be one."""
        outcome = self._finish(decided)
        assert isinstance(outcome, Answer), outcome
        return outcome

    def _finish(self, decided: Decided[T]) -> Outcome[T]:
        if isinstance(decided, Refused):
            return decided
        if isinstance(decided, tuple):
            events, reply, level = decided
            batch = 0
            if events is not None:
                batch = self.commit_all(events) if isinstance(events, list) else self.commit(events)
            return self._answer(reply, batch, level)
        stepping: Stepping[T] = self._stepping(decided)
        while not stepping.step():
            pass
        return self.outcome_of(stepping)

    def _stepping(self, steps: Any) -> Stepping[Any]:
        return Stepping(steps, carry=self._carry, now=self.now)

    def _carry(self, step: Step) -> int:
        """Do one step of a decision; return the batch that it joined, or 0."""
        if isinstance(step, list):
            return self.commit_all(step) if step else 0
        if isinstance(step, Pass):
            self.state.advance(step.topic, step.until_ms)
        else:
            self.state.expire_keys(self.now())
        return 0

    def outcome_of(self, stepping: Stepping[T]) -> Outcome[T]:
        """Return what steps that are over have come to."""
        outcome = stepping.outcome
        assert outcome is not None, "the last step has an outcome"
        if isinstance(outcome, (Behind, Refused)):
            return outcome
        reply, level = outcome
        return self._answer(reply, stepping.batch, level)

    def _answer(self, reply: T, batch: int, level: int) -> Answer[T]:
        """Return the answer of a decision whose events joined ``batch``; 0 where it logged none."""
        if isinstance(reply, Redriven):
            self.totals.redriven += reply.redriven
        if level and not batch:
            batch = self.write()
        return Answer(reply, batch, level, self.durability)

    def commit(self, event: Event) -> int:
        """Log an event, then fold it; return the batch it joined.

        Raises Overloaded where the disk is full and Closed where the log has failed; nothing was changed then.
        """
        log, body = self.log, encode(event)
        kind, urgent = self._kinds[event.__class__]
        location = log.append_one(kind, event.topic, body, urgent)
        self.log_bytes += len(body)
        self._apply(event, location)
        return log.pending_batch

    def commit_all(self, events: list[Event]) -> int:
        """Commit events that belong together: one batch holds them all, or none."""
        if len(events) == 1:
            return self.commit(events[0])
        entries = [(self._kinds[event.__class__][0], event.topic, encode(event)) for event in events]
        locations = self.log.append(entries, urgent=any(event.__class__ in URGENT for event in events))
        self.log_bytes += sum(len(body) for _, _, body in entries)
        for event, location in zip(events, locations, strict=True):
            self._apply(event, location)
        return self.log.pending_batch

    def rewrite(self, event: Event) -> None:
        """Commit an event that must be logged to free space: it may use the last room of the disk."""
        body, (kind, _) = encode(event), self._kinds[event.__class__]
        [location] = self.log.append(((kind, event.topic, body),), urgent=True, reclaim=True)
        self.log_bytes += len(body)
        self._apply(event, location)

    def _apply(self, event: Event, location: int) -> None:
        """Fold a logged event; update the totals, the meters and the changed topics."""
        if self.listeners:
            for listener in self.listeners:
                listener(event)
        frames, state = self._frames, self.state
        self._frames = frames + 1
        if not frames and self.durability is not None:  # the event is written even if the rest of its command fails
            self.durability.plan()
        _, _, tally, fold_one = _PLANS[event.__class__]
        if tally is not None:
            tally(self, event)
        if event.at_ms > state.log_ms:  # what waited for its queue is judged by an earlier time
            state.log_ms = event.at_ms
        fold_one(state, event, location)
        if tally is not None:
            return
        if event.__class__ is Appended:
            topic = state.by_id[event.topic]
            self.note_head(topic, topic.head_seq)
            state.appended_bytes += len(event.blobs)
            self.reader.remember(location, event)
            if event.extra is None or not event.extra.moved_from:
                self.totals.produced += event.count
        elif event.__class__ is TopicPut:
            self.changed_topics.add(state.by_id[event.topic])

    def note_head(self, topic: Topic, seq: int) -> None:
        """Record that the newest seq of a topic is in the pending batch, and wake the callers that wait for it."""
        if self._heads_batch != self.log.pending_batch:
            if self._heads:
                self._close_heads()
            self._heads_batch = self.log.pending_batch
        self._heads[topic.id] = seq
        self.changed_topics.add(topic)

    def preamble(self) -> list[tuple[int, int, bytes]]:
        """Return the frames that every new segment starts with, so that it can be read without the ones before it."""
        event = StateCarried(self.state.log_ms, msgspec.Raw(dump_state(self.state)))
        return [(kind_of(event), 0, encode(event))]

    def follow(self, listener: Listener) -> None:
        """Call ``listener`` with every event from now on, before it is folded, and collect expired leases."""
        if not self.listeners:
            self.state.ended = []
        self.listeners.append(listener)

    def unfollow(self, listener: Listener) -> None:
        """Stop calling ``listener``."""
        self.listeners.remove(listener)
        if not self.listeners:
            self.state.ended = None

    # Durability

    def write(self) -> int:
        """Hand everything pending to the operating system; return the last batch written."""
        if self._heads:
            self._close_heads()
            self._plan_limit_checks()
        if self._frames:
            self.totals.batch_frames.observe(self._frames)
            self._frames = 0
            self._reserve()
        return self.log.write()

    def _reserve(self) -> None:
        """Reserve room to settle each live job, and half as much for what it takes more once it is rewritten.

        It has up to 94 bytes in the base of its topic, and its record has a seq and times, which an append has once.
        """
        jobs = self.state.jobs | _RESERVED_WITH
        if jobs != self._reserved_jobs:
            self._reserved_jobs, ack_bytes = jobs, jobs * self.settings.reserve_per_job_bytes
            self.log.reserve(ack_bytes, growth_bytes=ack_bytes // 2)

    def _close_heads(self) -> None:
        """Record which records joined the batch that has ended; a roll may end one in the middle of a turn."""
        self._unsynced.append((self._heads_batch, self.state.appended_bytes, self._heads))
        self._heads, self._heads_batch = {}, self.log.pending_batch

    def synced(self, batch: int) -> None:
        """Mark batches up to this one durable, and make the records of fsync topics in them visible."""
        if batch > self.synced_batch:
            self.synced_batch = batch
        if self.state.must_check_limits:
            self._plan_limit_checks()
        while self._unsynced and self._unsynced[0][0] <= batch:
            _, self.state.synced_bytes, heads = self._unsynced.popleft()
            for topic_id, seq in heads.items():
                topic = self.state.by_id.get(topic_id)
                if topic is not None and seq > topic.durable_seq:
                    topic.durable_seq = seq
                    if topic.config.durability in SYNCED:
                        self.changed_topics.add(topic)

    def _plan_limit_checks(self) -> None:
        """Decide, once per write and sync, whether appends must look at the broker's limits before they go on."""
        settings, state = self.settings, self.state
        looked_at_from = settings.pending_bytes_max // _LOOKED_AT_FROM
        state.must_check_limits = (
            settings.total_bytes_max > 0 or state.appended_bytes - state.synced_bytes > looked_at_from
        )

    def sync(self) -> int:
        """Write and sync at once."""
        self.write()
        batch = self.log.sync()
        self.synced(batch)
        return batch

    def turn_on_features(self) -> int:
        """Use every feature of this version from now on; return the batch with whose sync that is durable.

        Raises Overloaded where there is no room for a segment and Closed where the log has failed; nothing was changed.
        """
        self.write()
        batch = self.log.turn_on_features()
        self.state.features, self._kinds = self.log.features.names, _KindsOn(self.log.features)
        return batch

    def checkpoint(self) -> bytes:
        """Return the whole state as bytes; valid for the log's position at this moment, after that is synced."""
        return dump_checkpoint(self.state)

    def keys_held(self, name: str) -> int:
        """Return how many idempotency keys a topic remembers now; 0 where there is no such topic."""
        topic = self.state.topics.get(check_topic_name(name))
        return 0 if topic is None else self.state.expire_keys_of(topic, self.now())

    @property
    def metrics(self) -> Metrics:
        """Totals since the broker was opened."""
        self.totals.expired, self.totals.lost = self.state.expired, self.state.lost
        return self.totals

    def meters_of(self, name: str) -> QueueMeters:
        """Report how long a queue's jobs wait and take, and how often they are delivered."""
        topic, queue = self.state.queue(name)
        self.state.advance(topic, self.now())
        return self.meters.report(topic, queue, wall_offset_ms=self.state.wall_offset_ms)

    def still_held(self, grant: Grant) -> Grant:
        """Return a grant with the jobs that are still held of it now."""
        now_ms, topic = self.now(), self.state.topics.get(grant.topic)
        if topic is not None:
            self.state.advance(topic, now_ms)
        return keep_held(self.state, grant, now_ms)

    def take_ended(self) -> list[tuple[Topic, Ended]]:
        """Return the leases that have expired since the last call, where they are collected."""
        ended = self.state.ended
        if not ended:
            return []
        self.state.ended = []
        return ended
