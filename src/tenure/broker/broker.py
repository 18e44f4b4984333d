"""The broker: one writer in process, every command of the contract, nothing that polls.

A command is carried out when it is called: it is decided, logged and folded before the call returns, in the order of
the calls. It returns an `Answer` to await, which resolves once the write is as durable as its topic asks for. So a
caller may send a thousand commands and then wait for one write; a caller that awaits each one sees no difference.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, KeysView
from functools import partial
from typing import Any, TypeVar, cast

from tenure.broker.answer import Answer, OpenAnswer
from tenure.broker.commands import CommandMethods
from tenure.broker.data_home import Home, open_home
from tenure.broker.durability.upkeep import Upkeep
from tenure.broker.engine import Engine, Outcome
from tenure.broker.observing.metrics import Metrics
from tenure.broker.observing.pins import Pin, mark_time
from tenure.broker.serving.forwarding import OwnerOf
from tenure.broker.serving.loop import ServingLoop
from tenure.broker.serving.streams import Subscription, WorkStream
from tenure.broker.stepping import Stepping
from tenure.broker.upgrade import Upgrade
from tenure.clock import Clock, SystemClock
from tenure.contract.bounds import Bounds, Reaches
from tenure.contract.commands import (
    Begin,
    Claim,
    Command,
    Diff,
    EndNode,
    GetJob,
    GetRouter,
    GetTopic,
    ListJobs,
    ListLeases,
    ListRouters,
    ListTopics,
    OfHolder,
    Strip,
)
from tenure.contract.names import check_node, check_topic_name, describe_value
from tenure.contract.replies import (
    Extended,
    JobInfo,
    JobRow,
    LeaseRow,
    Page,
    QueueMeters,
    QueueStrip,
    Settled,
    TopicInfo,
    UpgradeStatus,
)
from tenure.contract.values import check_whole
from tenure.core.decide.decision import Behind, Refused
from tenure.core.decide.table import DECIDES, STEPPED
from tenure.core.state.router import Router
from tenure.core.suspects import waiting_count
from tenure.errors import Invalid, TenureError
from tenure.log import checkpoint
from tenure.log.disk import Disk
from tenure.log.log import FileLog
from tenure.log.recovery import RecoveryReport
from tenure.settings import Settings

__all__ = ["Broker"]

S = TypeVar("S", Settled, Extended)
T = TypeVar("T")


class Broker(CommandMethods):
    """An open broker. Create one with `Broker.open`; use it from the event loop it was opened on.

    Errors are raised by the call itself, before anything changed; awaiting an answer raises only Indeterminate, when
    the disk failed under it. A call that waits for a queue to catch up, or runs in steps, raises its errors there too.
    ``asyncio.ensure_future`` makes a task of an answer.

    >>> import asyncio
    >>> from tenure import Broker
    >>> async def main():
    ...     async with await Broker.open() as broker:
    ...         await broker.put_topic("mail", {"type": "queue"})
    ...         await broker.produce("mail", [b'"hello"'])
    ...         grant = await broker.claim("mail", node="worker-1")
    ...         return (await broker.ack("mail", node="worker-1", lease_id=grant.lease_id)).count
    >>> asyncio.run(main())
    1
    """

    def __init__(self, engine: Engine, disk: Disk | None) -> None:
        self._engine = engine
        self._state = engine.state
        self._serving = ServingLoop(engine, asyncio.get_running_loop())
        self._upkeep = Upkeep(engine, self._serving.committer, disk)
        self._upgrade = Upgrade(engine, self._serving.committer)
        self._marked = 0
        #: The commands that may wait, or that run in steps; all others are decided when they are called.
        self._ways: dict[type[Command[Any]], Callable[[Any, Bounds | None], Answer[Any] | OpenAnswer[Any]]] = {
            **dict.fromkeys(STEPPED, self._step_through),
            Claim: self._serving.lines.claim,
            Diff: self._serving.lines.read,
        }

    @classmethod
    async def open(
        cls,
        home: Home = None,
        *,
        clock: Clock | None = None,
        settings: Settings | None = None,
    ) -> Broker:
        """Open a data directory (or a disk, or a log; None keeps everything in memory) and recover what it holds.

        Raises Conflict where another process has it open, Corrupt where the log is damaged, Closed where it cannot be
        written, Invalid where it is none of these.
        """
        settings = settings or Settings()
        disk, log = open_home(home, settings)
        engine = Engine(log, clock=clock or SystemClock(), settings=settings)
        try:
            engine.recover(checkpoint.load(disk) if disk is not None else ())
        except BaseException:
            log.close()
            raise
        return cls(engine, disk)

    @property
    def recovery(self) -> RecoveryReport | None:
        """The report of opening the log: batches, a torn tail if there was one. None for a broker in memory."""
        log = self._engine.log
        return log.report if isinstance(log, FileLog) else None

    @property
    def waits_for_disk(self) -> bool:
        """Whether an answer waits for a write or a sync: postpone work that can wait."""
        return self._serving.committer.is_awaited

    @property
    def failed(self) -> TenureError | None:
        """The error with which the disk failed, or None. The broker is read-only after it: open the directory again."""
        return self._engine.log.failed

    @property
    def is_crowded(self) -> bool:
        """Whether the disk is full: appends are refused, and acks use the room that is reserved for them."""
        return self._engine.log.crowded

    async def __aenter__(self) -> Broker:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def give_up(self, error: TenureError) -> None:
        """Take nothing more, for good: another process leads the log now, or its home is damaged."""
        self._serving.committer.fail(error)

    def when_failed(self, call: Callable[[], None]) -> None:
        """Have ``call`` called once the log has failed."""
        self._serving.when_failed = call

    def charge_copies(self, owner_of: OwnerOf) -> None:
        """Charge the copies of a router to the account that ``owner_of`` returns; accounts copy in turn."""
        self._serving.forwarding.owner_of = owner_of

    async def close(self, hand_to: str | None = None) -> None:
        """Refuse waiting callers, write and sync everything, write a checkpoint, release the directory.

        They are refused with Closed. Where the log has a home and another process goes on with it, ``hand_to`` is the
        URL of that process, or empty for any: then they get NotLeader, and the home names it.
        """
        self._serving.close(hand_to)
        self._upgrade.close()
        await self._upkeep.finish(hand_to or "")

    def run(self, command: Command[T], bounds: Bounds | None = None) -> Answer[T] | OpenAnswer[T]:
        """Run a command, as the method of its name does, for a caller within ``bounds``. Raises Invalid for what is no
        command.
        """
        kind, serving = command.__class__, self._serving
        if kind not in DECIDES:
            raise Invalid(f"run takes a command; got {describe_value(command)}")
        if bounds is not None and bounds.__class__ is not Bounds:
            raise Invalid(f"bounds must be Bounds or None; got {describe_value(bounds)}")
        if serving.must_check:
            serving.check_open()
        way = self._ways.get(kind)
        if way is not None:
            return way(command, bounds)
        outcome = self._engine.run(command, bounds)
        if outcome.__class__ is not Answer:
            return self._run_later(outcome, command, bounds)
        if serving.streams.by_node or serving.graces.waiting:
            self._note_life(command, outcome.reply)
        serving.settle()
        return outcome

    def _step_through(self, command: Command[T], bounds: Bounds | None) -> Answer[T] | OpenAnswer[T]:
        serving = self._serving
        outcome = serving.long_commands.step_through(command, bounds)
        if isinstance(outcome, (Behind, Refused)):
            return self._run_later(outcome, command, bounds)
        self._note_life(command, outcome.reply if isinstance(outcome, Answer) else None)
        serving.settle()
        return outcome

    def _run_later(self, outcome: Outcome[T], command: Command[T], bounds: Bounds | None) -> OpenAnswer[T]:
        """Return the answer of a command that has none yet; one of a holder is judged by when it came."""
        assert not isinstance(outcome, Answer)
        answer = self._serving.long_commands.later(outcome, partial(self._run_as_of, command, bounds))
        self._serving.settle()
        return answer

    def _run_as_of(self, command: Command[T], bounds: Bounds | None, came_ms: int) -> Outcome[T] | Stepping[T]:
        """Run a command that has waited for its topic: as of when it came where it is about jobs that its node holds.

        Any other runs now: no record may be older than those before it, which others may have appended meanwhile.
        """
        serving = self._serving
        if serving.must_check:
            serving.check_open()
        is_held = isinstance(command, (OfHolder, Begin))
        outcome: Outcome[T] | Stepping[T]
        if command.__class__ in STEPPED:
            outcome = self._engine.begin(command, bounds, came_ms=came_ms if is_held else None)
        else:
            outcome = self._engine.run_as_of(command, came_ms) if is_held else self._engine.run(command, bounds)
        if isinstance(outcome, (Answer, Stepping)):
            self._note_life(command, outcome.reply if isinstance(outcome, Answer) else None)
        serving.settle()
        return outcome

    def _note_life(self, command: Command[T], reply: T | None) -> None:
        """Note that the node of a command lives, or that another one says it has ended: that ends its grace. There is
        no reply yet where the command takes more turns; what it does to jobs is the sign then.
        """
        serving = self._serving
        if serving.streams.by_node and isinstance(command, OfHolder) and reply is not None:
            serving.streams.note_sign_of_life(cast("Settled | Extended", reply), command.node)
        if not serving.graces.waiting:
            return
        if isinstance(command, EndNode):
            serving.graces.ended(command.node, command.topic)
        elif isinstance(command, (OfHolder, Begin)):
            serving.graces.heard(command.node)

    def _look(self, command: Command[T], bounds: Bounds | None = None) -> T:
        """Run a command that only looks: its reply waits for no write."""
        return self.run(command, bounds).reply

    # Streams

    def work(
        self,
        topic: str,
        *,
        node: str,
        max_count: int = 1,
        lease_ms: int | None = None,
        isolate: bool = False,
        group: str | None = None,
        suspects: bool = False,
    ) -> WorkStream:
        """Open a stream that keeps up to ``max_count`` jobs leased to this reader, more as it acks; close it to
        give them back. ``isolate``, ``group`` and ``suspects`` are those of its claims.
        """
        self._serving.check_writable()
        found, _ = self._state.queue(topic)
        claim = Claim(
            topic=topic,
            node=node,
            max_count=max_count,
            lease_ms=lease_ms,
            isolate=isolate,
            group=group,
            suspects=suspects,
        )
        stream = self._serving.open_stream(found, claim)
        self._serving.graces.heard(node)
        return stream

    @property
    def keeps_tries(self) -> bool:
        """Whether the log tells tries from deliveries: its feature ``returns`` is on."""
        return "returns" in self._state.features

    def suspects(self, topic: str) -> int:
        """Return how many suspects wait on a queue; 0 where there is no such queue."""
        self._serving.check_open()
        found = self._state.find(check_topic_name(topic))
        if found is not None:
            self._state.advance(found, self._engine.now())
            self._serving.settle()
        return 0 if found is None or found.queue is None else waiting_count(found, found.queue)

    def detach(self, topic: str | None = None, *, node: str | None = None) -> int:
        """End the work streams of a node, or of all nodes; return how many. Jobs that were read from them stay leased.

        A worker that drains takes no more and finishes what it has; a broker that stops finds those jobs still leased
        when it is opened again.
        """
        self._serving.check_open()
        found = None if topic is None else self._state.queue(topic)[0]
        return self._serving.detach(found, None if node is None else check_node(node))

    # Looking

    def jobs(self, topic: str, *, state: str = "ready", limit: int = 100, cursor: str | None = None) -> Page[JobRow]:
        """Jobs in one state: ready, in_flight, delayed or parked."""
        return self._look(ListJobs(topic=topic, state=state, limit=limit, cursor=cursor))

    def job(self, topic: str, seq: int) -> JobInfo:
        """One job: its record, its state and its failed deliveries."""
        return self._look(GetJob(topic=topic, seq=seq))

    def leases(self, topic: str, *, limit: int = 100, cursor: str | None = None) -> Page[LeaseRow]:
        """Return the live leases of a queue."""
        return self._look(ListLeases(topic=topic, limit=limit, cursor=cursor))

    def strip(self, topic: str, *, head: int = 100, tail: int = 20, leases: int = 50) -> QueueStrip:
        """Both ends of a queue, its leases and its counts, at the cost of what is shown."""
        return self._look(Strip(topic=topic, head=head, tail=tail, leases=leases))

    def meters(self, topic: str) -> QueueMeters:
        """How long a queue's jobs wait and take, and how often they are handed out, since the broker was opened."""
        self._serving.check_open()
        meters = self._engine.meters_of(topic)
        self._serving.settle()  # looking lets time pass, which may make jobs claimable
        return meters

    def topic(self, topic: str, *, touch: bool = True) -> TopicInfo:
        """Return a topic's state and config."""
        return self._look(GetTopic(topic=topic, touch=touch))

    def topics(self, *, prefix: str = "", limit: int = 100, cursor: str | None = None) -> Page[str]:
        """Return names of topics, in order."""
        return self._look(ListTopics(prefix=prefix, limit=limit, cursor=cursor))

    @property
    def topic_names(self) -> KeysView[str]:
        """The names of all topics: a view, which stays up to date."""
        return self._state.topics.keys()

    @property
    def router_names(self) -> KeysView[str]:
        """The names of all routers: a view, which stays up to date."""
        return self._state.routers.keys()

    @property
    def idempotency_keys_count(self) -> int:
        """How many idempotency keys are remembered, of all topics."""
        return self._state.idempotency_keys

    def ended(self, topic: str) -> tuple[int, int]:
        """Return how many jobs of a queue expired, and how many were lost; (0, 0) where there is no such queue."""
        self._serving.check_open()
        found = self._state.find(check_topic_name(topic))
        return (found.queue.expired, found.queue.lost) if found is not None and found.queue is not None else (0, 0)

    def idempotency_keys(self, topic: str) -> int:
        """Return how many idempotency keys a topic remembers now; 0 where there is no such topic."""
        self._serving.check_open()
        return self._engine.keys_held(topic)

    async def synced(self) -> None:
        """Wait until everything appended so far is durable, also in topics that do not ask for a sync."""
        self._serving.check_open()
        await self._serving.committer.durable(self._engine.write())

    @property
    def metrics(self) -> Metrics:
        """Totals since the broker was opened."""
        return self._engine.metrics

    def events(self, topic: str | None = None) -> Subscription:
        """Follow the life of jobs from now on, of one topic or of all."""
        self._serving.check_open()
        if topic is not None:
            self._state.topic(topic)
        return self._serving.subscribe(topic)

    # Upgrading

    def upgrade_status(self) -> UpgradeStatus:
        """Return which features the log uses, and which of this version it does not use yet."""
        self._serving.check_open()
        return self._upgrade.status()

    async def finalize_upgrade(self) -> UpgradeStatus:
        """Turn on every feature of this version, durably: an older version cannot open the directory after that.

        Raises Overloaded where the disk has no room for it, Closed after `close` and after the disk has failed.
        """
        self._serving.check_writable()
        await self._upgrade.finalize()
        return self._upgrade.status()

    # For a reader of the log in another process

    def pin(self, batch: int | None, *, bytes_max: int = 0) -> None:
        """Keep the log from ``batch`` on while that takes no more than ``bytes_max`` beyond what is kept anyway; None
        removes the pin.
        """
        self._serving.check_open()
        bytes_max = check_whole(bytes_max, "bytes_max")
        self._engine.pin = None if batch is None else Pin(check_whole(batch, "batch"), bytes_max)

    def mark_time(self) -> None:
        """Log the time where a lease has expired since the last mark: no other event shows that its deadline passed."""
        self._serving.check_open()
        self._marked = mark_time(self._engine, self._marked)
        self._serving.settle()

    def router(self, router: str) -> Router:
        """Return one router, as it is now."""
        found: Router = self._look(GetRouter(router=router))
        return found

    def routers(
        self,
        *,
        prefix: str = "",
        source: str | None = None,
        dest: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
        reaches: Reaches | None = None,
    ) -> Page[Router]:
        """Return routers by name, those between the given topics only. ``reaches`` says which names the caller may see;
        a router with any other is left out.
        """
        command = ListRouters(prefix=prefix, source=source, dest=dest, limit=limit, cursor=cursor)
        return self._look(command, Bounds(reaches=reaches))
