"""One life: a broker that is opened, used, hurt and opened again, on one seed.

A life is a list of steps. Each step draws from a random of its own, made from the seed and the step's number, so that
a life can be told again without some of its steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import Any
from unittest import mock

from tenure.broker import broker as broker_module
from tenure.broker.broker import Broker
from tenure.broker.engine import Engine
from tenure.broker.serving.streams import Subscription, WorkStream
from tenure.contract.replies import Grant, Produced
from tenure.core.events import Appended, Claimed
from tenure.errors import Overloaded, TenureError
from tenure.testing.simdisk import CrashMode
from tests.lives import check
from tests.lives.anomaly import Anomaly
from tests.lives.calls import (
    DISK,
    FSYNC,
    SLACK_MS,
    Call,
    Promises,
    check_claim,
    check_dead_lease,
    check_diff,
    check_error,
    check_produced,
)
from tests.lives.disk import LifeDisk
from tests.lives.loop import LifeClock, TurnLoop
from tests.lives.thresholds import random_settings
from tests.lives.witness import Witness
from tests.model.machine import last_batch

__all__ = ["Held", "Life"]


class Held:
    """A lease that a worker believes in."""

    def __init__(self, claim: Grant, claim_id: str | None) -> None:
        self.topic, self.node, self.lease_id = claim.topic, claim.node, claim.lease_id
        self.seqs = claim.seqs
        self.claim_id = claim_id
        self.deadline = claim.deadline


class Life:
    """A broker and its callers; ``traits`` says what this life has in it."""

    def __init__(self, seed: int, *, without: Iterable[str] = ()) -> None:
        self.seed = seed
        random = Random(f"life {seed}")
        self.traits = {trait for trait in TRAITS if random.random() < 0.6} - set(without)
        self.settings = random_settings(random)
        self.random = random
        self.weights: dict[str, float] = {}
        self.clock = LifeClock()
        self.disk = LifeDisk(seed)
        self.witness = Witness()
        self.promises = Promises(self.witness)
        self.story: list[str] = []
        self.made = 0
        self.client_seqs: dict[str, int] = {}
        self.is_serving = False
        self.is_full = False
        self.has_failed = False
        self.was_stopped = False
        self.calls: list[Call] = []
        self.held: list[Held] = []
        self.streams: list[WorkStream] = []
        self.subscriptions: list[Subscription] = []
        self.remembered: list[tuple[Any, bytes]] = []
        self.claim_ids: list[tuple[str, str, str]] = []
        self.loop: TurnLoop
        self.broker: Broker
        self.open()

    def say(self, text: str) -> None:
        self.story.append(f"{self.clock.boot_ms():>9} {text}")

    # Opening and ending a process

    def open(self) -> None:
        """Open the directory; a directory that was closed or crashed always opens."""
        self.loop = TurnLoop(self.clock, self._pace)
        self.disk.stall = self._stall
        witness = self.witness

        class WatchedEngine(Engine):
            def __init__(self, log: Any, **options: Any) -> None:
                super().__init__(log, **options)
                witness.log = log
                self.listeners.append(witness)

            def now(self) -> int:
                witness.look_up()
                return super().now()

        async def opening() -> Broker:
            return await Broker.open(self.disk, clock=self.clock, settings=self.settings)

        witness.new_turn()
        with mock.patch.object(broker_module, "Engine", WatchedEngine):
            try:
                self.broker = self.loop.complete(opening())
            except TenureError as error:
                raise Anomaly("open", f"the directory does not open: {error!r}") from error
        self.is_serving, self.has_failed, self.was_stopped = True, False, False
        self.calls, self.held, self.streams, self.subscriptions = [], [], [], []
        self.remembered = []

    @property
    def engine(self) -> Engine:
        return self.broker._engine

    @property
    def is_read_only(self) -> bool:
        return self.engine.log.failed is not None

    def crash(self, mode: CrashMode | None, *, off_ms: int | None = None, checkpoints: int = 2) -> None:
        """End the process, by kill -9 (None) or a power loss, and open what is left.

        ``off_ms`` is how long the machine was off, None where it was not; ``checkpoints`` how many are left to use.
        """
        self.loop.die()
        self.is_serving = False
        self.reopen(self.disk.reborn(mode), FSYNC if mode is not None else DISK, off_ms, checkpoints)

    def reopen(self, world: LifeDisk, level: int, off_ms: int | None, checkpoints: int) -> None:
        """Open what a process left, and hold it against what callers were told."""
        for name in [name for name in world.names() if name.endswith(".checkpoint")][checkpoints:]:
            world.remove(name)
        try:
            survived = last_batch(world.kill(), self.settings.segment_bytes)
        except TenureError as error:
            raise Anomaly("open", f"the directory does not open: {error!r}") from error
        self.promises.check(survived, level)
        self.disk = world
        self.witness = self.witness.rewound(survived)
        self.promises = self.promises.rewound(self.witness)
        check.fold_agrees_on(world.kill(), self.settings, check.log_time(self.engine))
        self.clock = self.clock.inherit()
        if off_ms is not None:
            self.clock.reboot(off_ms=off_ms)
        self.open()
        self.look()

    def close(self, *, cancelled_after: int | None = None) -> None:
        """Close the broker, perhaps at the second try; everybody who waits must be told, and everything must last."""
        self.is_serving = False
        if cancelled_after is not None:
            first = self.loop.create_task(self.broker.close())
            for _ in range(cancelled_after):
                self.loop.turn()
            first.cancel()
            self.loop.settle()
        try:
            self.loop.complete(self.broker.close())
        except TenureError as error:
            if not self.has_failed:
                raise Anomaly("close", f"close() raises {error!r}") from error
        self.loop.settle(hurry=True)
        for call in self.calls:
            if not call.task.done():
                raise Anomaly("hang", f"{call} is not answered by close()")
        self.check_escapes()
        if self.disk._locked:
            raise Anomaly("close", "close() came back, and the directory is still locked")
        level = FSYNC if self.has_failed else 0
        self.loop.die()
        self.reopen(self.disk.reborn(None), level, None, 2)

    # Calls

    def call(
        self,
        what: str,
        topic: str,
        command: Callable[[], Awaitable[Any]],
        *,
        level: int = 0,
        kinds: tuple[type, ...] = (),
        wait_ms: int | None = 0,
        node: str = "",
    ) -> Call | None:
        """Send a command; its answer is looked at when it comes. None where it was refused."""
        start = len(self.witness.noted)
        name = f"{what}({topic})"
        on_read_only = self.is_read_only
        try:
            answer = command()
        except Exception as error:
            self._refused(name, error, start)
            return None
        call = Call(
            what,
            topic=topic,
            task=asyncio.ensure_future(answer, loop=self.loop),
            at_ms=self.clock.boot_ms(),
            wait_ms=wait_ms,
        )
        found = self.broker._state.find(topic) if topic else None
        call.level, call.node, call.on_read_only = level, node, on_read_only
        call.turn = self.loop.turns
        noted = range(start, len(self.witness.noted))
        call.events = [i for i in noted if isinstance(self.witness.noted[i].event, kinds)]
        call.was_empty = not any(
            isinstance(event := self.witness.noted[i].event, Claimed) and event.node == node for i in noted
        )
        topic_id = found.id if found is not None else 0
        call.task.add_done_callback(lambda task: self._answered(call, topic_id))
        self.calls.append(call)
        return call

    def look_at(self, what: str, topic: str, command: Callable[[], Any]) -> Any:
        """Send a command that answers at once; None where it was refused."""
        try:
            return command()
        except Exception as error:
            self._refused(f"{what}({topic})", error, len(self.witness.noted))
            return None

    def _refused(self, name: str, error: Exception, start: int) -> None:
        self.say(f"{name} is refused: {error!r}"[:200])
        check_error(name, error, disk_failed=self.has_failed)
        if self.is_full and isinstance(error, Overloaded) and error.code == "disk_full" and name[:3] in ("ack", "cla"):
            raise Anomaly("full", f"{name} is refused on a full disk")
        appended = [noted.event for noted in self.witness.noted[start:] if isinstance(noted.event, Appended)]
        if name.startswith("produce") and any(event.topic == self._id(name[8:-1]) for event in appended):
            raise Anomaly("half done", f"{name} raises {error!r} after it appended")

    def _id(self, topic: str) -> int:
        found = self.broker._state.find(topic)
        return found.id if found is not None else 0

    def _answered(self, call: Call, topic_id: int) -> None:
        if self.loop.is_dead:
            return
        if call.task.cancelled():
            if not call.is_cancelled:
                raise Anomaly("escape", f"{call} is cancelled, and nobody did that")
            return
        error = call.task.exception()
        if error is not None:
            self.say(f"{call} ends with {error!r}"[:200])
            if call.is_cancelled:
                raise Anomaly("release", f"{call} was cancelled and raises {error!r}")
            if not isinstance(error, StopAsyncIteration):
                check_error(str(call), error, disk_failed=self.has_failed)
            return
        for index in call.events:
            self.promises.make(index, call.level)
        self._check_result(call, call.task.result(), topic_id)
        if call.then is not None:
            call.then(call.task.result())

    def _check_result(self, call: Call, result: Any, topic_id: int) -> None:
        now = check.log_time(self.engine)
        match call.what:
            case "claim" | "read":
                if call.on_read_only and not result.jobs:
                    raise Anomaly("read-only", f"{call} is answered OK, empty, by a broker that takes no writes")
                check_claim(result, self.witness, self.promises, topic_id=topic_id, now=now)
                # What is answered in the moment it is asked is of that moment, whatever its own node does next.
                if not self.was_stopped and (call.what == "read" or self.clock.boot_ms() > call.at_ms):
                    check_dead_lease(result, self.witness, topic_id=topic_id, now=now)
            case "produce":
                topic = self.broker._state.by_id.get(topic_id)
                assert isinstance(result, Produced)
                if topic is not None and topic.config.durability == "fsync" and call.level == FSYNC:
                    check_produced(result, topic.durable_seq)
            case "diff":
                check_diff(result, call.from_seq, self.witness, self.promises, topic_id=topic_id)
            case _:
                pass

    # The disk

    def _pace(self) -> tuple[int, bool]:
        return self.disk.sync_ms, self.random.random() < 0.5

    def _stall(self, what: str, ms: int) -> None:
        if self.loop.in_thread or not self.is_serving:
            return
        self.clock.pass_by(ms)
        self.loop.anomaly = Anomaly("stall", f"a {what} of {ms} ms on the loop's own thread")
        raise self.loop.anomaly

    # Time

    def stop(self, ms: int) -> None:
        """Stop the process while things are under way; a call that nobody has awaited yet begins to wait after it."""
        self.was_stopped = True
        self.clock.pass_by(ms)
        for call in self.calls:
            if call.turn == self.loop.turns:
                call.at_ms = self.clock.boot_ms()

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.witness.new_turn()
            self.loop.turn()

    def settle(self, *, hurry: bool = False) -> None:
        self.witness.new_turn()
        self.loop.settle(hurry=hurry)

    def run_for(self, ms: int) -> None:
        self.witness.new_turn(more=ms)  # alarms of many turns: about one for every millisecond
        self.loop.run_for(ms)

    # Checks

    def look(self) -> None:
        """What must hold after every step."""
        self.check_escapes()
        check.state_holds(self.engine, self.witness)
        for stream in self.streams:
            check.stream_is_bounded(stream)

    def check_escapes(self) -> None:
        if self.loop.escaped:
            raise Anomaly("escape", self.loop.escaped[0])

    def rest(self) -> None:
        """Let the disk catch up: then everybody is answered and fed, and nothing waits to be done."""
        sync_ms, self.disk.sync_ms = self.disk.sync_ms, 0
        self.settle(hurry=True)
        self._check_answers([call for call in self.calls if call.wait_ms == 0])
        if not self.is_read_only:
            hungry, ends = check.hungry(self), check.ends(self.engine)
            self.run_for(self.settings.sync_interval_ms + 2 * SLACK_MS)
            self.settle(hurry=True)
            if both := hungry & check.hungry(self):
                raise Anomaly("starved", f"{sorted(both)[0]} waits, and there is a job for it")
            check.all_is_synced(self.engine, ends)
            check.nobody_holds_for_the_gone(self)
        self._check_answers(self.calls)
        self.disk.sync_ms = sync_ms
        self.calls = [call for call in self.calls if not call.task.done()]

    def _check_answers(self, calls: list[Call]) -> None:
        now = self.clock.boot_ms()
        for call in calls:
            if call.is_late(now):
                raise Anomaly("hang", f"{call} of {call.at_ms} may wait {call.wait_ms} ms and is not answered at {now}")


TRAITS = (
    "cancel",
    "caps",
    "close",
    "crash",
    "decay",
    "durable leases",
    "fail",
    "full",
    "letters",
    "losses",
    "routers",
    "share",
    "slow",
    "stop",
    "streams",
    "told",
    "wall",
)
"""What a life may have in it; each one has some of these, so that faults do not always hide each other."""
