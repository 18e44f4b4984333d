"""The broker: one writer in process, every command of the contract, nothing that polls.

A command is carried out when it is called: it is decided, logged and folded before the call returns, in the order of
the calls. It returns an `Answer` to await, which resolves once the write is as durable as its topic asks for. So a
caller may send a thousand commands and then wait for one write; a caller that awaits each one sees no difference.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import TypeVar, cast

from tenure.broker.answer import Answer
from tenure.broker.commands import CommandMethods
from tenure.broker.data_home import Home, open_home
from tenure.broker.durability.upkeep import Upkeep
from tenure.broker.engine import Engine
from tenure.broker.observing.metrics import Metrics
from tenure.broker.observing.pins import Pin, mark_time
from tenure.broker.serving.forwarding import OwnerOf
from tenure.broker.serving.long_reads import Reading, ReadWaiter
from tenure.broker.serving.loop import ServingLoop
from tenure.broker.serving.streams import Subscription, WorkStream
from tenure.broker.serving.waiters import ClaimWaiter, Waiting
from tenure.broker.upgrade import Upgrade
from tenure.clock import Clock, SystemClock
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
    Reaches,
    Strip,
)
from tenure.contract.names import check_node, check_topic_name, describe_value
from tenure.contract.replies import (
    Difference,
    Extended,
    Grant,
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
from tenure.core.catching_up import CatchingUp
from tenure.core.decide.table import DECIDES, STEPPED
from tenure.core.early_conflict import EarlyConflict
from tenure.core.level import Level
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

    def run(self, command: Command[T]) -> Answer[T]:
        """Run a command, as the method of its name does. A claim, which may wait, goes to `run_claim`.

        Raises Invalid for a claim, or for what is no command.
        """
        if command.__class__ not in DECIDES or command.__class__ is Claim:
            raise Invalid(f"run takes a command that is no claim; got {describe_value(command)}")
        serving = self._serving
        if serving.must_check:
            serving.check_open()
        try:
            answer = (
                serving.long_commands.step_through(command)
                if command.__class__ in STEPPED
                else self._engine.run(command)
            )
        except CatchingUp as behind:
            return self._run_later(behind, command)
        except EarlyConflict as refusal:
            return serving.long_commands.refuse_later(refusal)
        if serving.streams.by_node or serving.graces.waiting:
            self._note_life(command, answer.reply)
        serving.settle()
        return answer

    def _run_later(self, behind: CatchingUp, command: Command[T]) -> Answer[T]:
        """Run a command when its topic has caught up with the present; one of a holder is judged by that."""
        answer = self._serving.long_commands.run_later(behind, partial(self._run_as_of, command))
        self._serving.settle()
        return answer

    def _run_as_of(self, command: Command[T], came_ms: int) -> Answer[T]:
        """Run a command that has waited for its topic: as of when it came where it is about jobs that its node holds.

        Any other runs now: no record may be older than those before it, which others may have appended meanwhile.
        """
        serving = self._serving
        if not isinstance(command, (OfHolder, Begin)):
            return self.run(command)
        if serving.must_check:
            serving.check_open()
        try:
            answer = self._engine.run_as_of(command, came_ms)
        except CatchingUp as behind:
            return self._run_later(behind, command)
        except EarlyConflict as refusal:
            return serving.long_commands.refuse_later(refusal)
        self._note_life(command, answer.reply)
        serving.settle()
        return answer

    def _note_life(self, command: Command[T], reply: T) -> None:
        """Note that the node of a command lives, or that another one says it has ended: that ends its grace."""
        serving = self._serving
        if serving.streams.by_node and isinstance(command, OfHolder):
            serving.streams.note_sign_of_life(cast("Settled | Extended", reply), command.node)
        if not serving.graces.waiting:
            return
        if isinstance(command, EndNode):
            serving.graces.ended(command.node, command.topic)
        elif isinstance(command, (OfHolder, Begin)):
            serving.graces.heard(command.node)

    def _look(self, command: Command[T]) -> T:
        """Run a command that only looks: its reply waits for no write."""
        return self.run(command).reply

    # Records

    def diff(
        self,
        topic: str,
        *,
        from_seq: int = 0,
        limit: int = 256,
        node: str | Collection[str] | None = None,
        wait_ms: int = 0,
    ) -> Awaitable[Difference]:
        """Read records above ``from_seq``; with ``wait_ms``, wait that long for one to come."""
        self._serving.check_open()
        waiter = ReadWaiter(self._serving, Diff(topic=topic, from_seq=from_seq, limit=limit, node=node))
        return Reading(self._serving, waiter, wait_ms=self._serving.clamp_wait(wait_ms))

    # Claims and streams

    def run_claim(self, command: Claim) -> Awaitable[Grant]:
        """Claim at once where no caller waits, else in turn. Raises Invalid for what is no claim."""
        if command.__class__ is not Claim:
            raise Invalid(f"run_claim takes a Claim; got {describe_value(command)}")
        serving, topic, wait_ms = self._serving, command.topic, command.wait_ms
        if serving.must_check or self._engine.log.failed is not None:
            serving.check_writable()
        if serving.graces.waiting and isinstance(command.node, str):
            serving.graces.heard(command.node)
        found = self._state.topics.get(topic) if topic.__class__ is str else None
        if (
            wait_ms
            or wait_ms.__class__ is not int
            or found is None
            or found.config.claim_jitter_ms
            or serving.coordinator.waiting
        ):
            return self._claim_in_turn(command, wait_ms=serving.clamp_wait(wait_ms))
        try:
            answer = self._engine.run(command)
        except CatchingUp:
            return self._claim_in_turn(command, wait_ms=0)
        if answer.level == Level.SYNCED:
            return serving.answer_claim(answer)
        serving.settle()
        return answer

    def _claim_in_turn(self, command: Claim, *, wait_ms: int) -> Awaitable[Grant]:
        """Run a claim that may have to wait: for callers before it, for its cohort, or for a job to come."""
        topic, queue = self._state.queue(command.topic)
        alone = not topic.config.claim_jitter_ms and not self._serving.coordinator.waits_on(topic)
        if alone or (isinstance(command.claim_id, str) and command.claim_id in queue.claims):
            answer = self._serving.claim_now(topic, command, or_wait=wait_ms > 0)
            if answer is not None:
                return answer
        waiter = ClaimWaiter(self._serving, topic, command)
        return Waiting(self._serving, waiter, wait_ms=max(wait_ms, topic.config.claim_jitter_ms))

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
        return self._look(
            ListRouters(prefix=prefix, source=source, dest=dest, limit=limit, cursor=cursor, reaches=reaches)
        )
