"""Clients of a life: they know every member, go where the leader is, and record what they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final, Literal, NamedTuple, TypeVar, Unpack, cast

from tenure.broker.broker import Broker
from tenure.chain.shipped import ShippedLog
from tenure.contract.replies import Grant, Settled
from tenure.errors import Closed, Conflict, Indeterminate, NotLeader, Overloaded, TenureError
from tenure.testing import History
from tenure.testing.history import Outcome
from tests.chain.members.machine import Machine
from tests.lives.anomaly import Anomaly
from tests.soak.worker import Isolation

__all__ = [
    "DEAD",
    "DELIVERIES_MAX",
    "JOBS",
    "LOG",
    "TOPICS",
    "Client",
    "Container",
    "Producer",
    "Reader",
    "Worker",
    "id_of",
]

T = TypeVar("T")

JOBS: Final = "jobs"
LOG: Final = "log"
DEAD: Final = "dead"
DELIVERIES_MAX: Final = {JOBS: 5}
TOPICS: Final[dict[str, dict[str, Any]]] = {
    JOBS: {
        "type": "queue",
        "durability": "fsync",
        "leases_durable": True,
        "max_deliveries": DELIVERIES_MAX[JOBS],
        "dead_letter": DEAD,
    },
    LOG: {"type": "log", "durability": "fsync"},
}
LEASE_MS: Final = 1_500
_PATIENCE_S: Final = (0.2, 1.0, 3.0)
_PAUSE_S: Final = 0.1
_GIVES_UP: Final = 40
_LETS_GO: Final = 0.7


class Unknown(Exception):
    """No answer came in time, or the process ended: the call may have happened, or may still happen."""


class Shared(NamedTuple):
    """What the clients of a life share."""

    machines: list[Machine]
    history: History
    now_ms: Callable[[], int]
    acked: list[int]
    """The seqs of the log whose append was answered."""
    epochs: list[int]
    """The epochs from which a read was answered, as long as each is later than the one before."""
    anomalies: list[Anomaly]
    """What was answered and must not have been, also to a client that does not wait any more."""
    sizes: Sequence[int] = ()
    """How much longer the records of an append may be than their ids."""


class Client:
    """One client; calls are made one after the other."""

    def __init__(self, name: str, shared: Shared, random: Random) -> None:
        self.name = name
        self._shared = shared
        self._random = random
        self._history = shared.history
        self._now_ms = shared.now_ms
        self._at = 0

    async def call(self, act: Callable[[Broker], Awaitable[T]]) -> T:
        """Ask one member. Raises Unknown; NotLeader, Overloaded and Closed where nothing happened."""
        machine = self._shared.machines[self._at % len(self._shared.machines)]
        process = machine.process
        if process is None or process.is_dead:
            self._at += 1
            raise Closed("nobody listens there")
        asking = process.ask(act)
        await asyncio.wait({asking}, timeout=self._random.choice(_PATIENCE_S))
        if not asking.done():
            if self._random.random() < 0.5:
                asking.cancel()  # else the request goes on without its client
            else:
                asking.add_done_callback(_forget)
            self._at += 1
            raise Unknown
        if asking.cancelled():
            raise Unknown
        try:
            return asking.result()
        except Indeterminate as error:
            raise Unknown from error
        except (NotLeader, Overloaded, Closed):
            self._at += 1
            raise

    async def pause(self) -> None:
        await asyncio.sleep(self._random.expovariate(1 / _PAUSE_S))


def _forget(asking: asyncio.Task[object]) -> None:
    if not asking.cancelled():
        asking.exception()


class Producer(Client):
    """Appends with a key, or with its own numbers, and repeats a call whose outcome is unknown.

    A call of which it is told that nothing happened is not always repeated: a repeat would hide that it happened.
    """

    async def run(self, topic: str) -> None:
        number = 0
        while True:
            await self.pause()
            number += 1
            ids = [f"{self.name}-{number}-{index}" for index in range(self._random.choice((1, 1, 3)))]
            await self._produce(topic, ids, number)

    async def _produce(self, topic: str, ids: list[str], number: int) -> None:
        pad = b" " * self._random.choice(self._shared.sizes) if self._shared.sizes else b""
        records = [b'"%s"' % id.encode() + pad for id in ids]
        mark = {"client_id": self.name, "client_seq": number} if topic == LOG else {"idempotency_key": ids[0]}
        self._note(topic, ids, "invoke")
        is_unknown = False
        for _ in range(_GIVES_UP):
            sent_ms = self._now_ms()
            try:
                produced = await self.call(lambda broker: broker.produce(topic, records, **mark))
            except Unknown:
                is_unknown = True
            except Conflict as error:  # the number was used: by an earlier copy of this call, for nobody else has it
                if not is_unknown:
                    raise Anomaly("false_repeat", f"{ids[0]} is new, and is refused: {error.message}") from error
                self._note(topic, ids, "ok")
                return
            except TenureError:
                if self._now_ms() > sent_ms and not is_unknown and self._random.random() < _LETS_GO:
                    break  # a leader had it, and said that nothing happened: so it must never be seen
            else:
                self._note(topic, ids, "ok", seqs=produced.seqs)
                if topic == LOG:
                    self._shared.acked.append(produced.last_seq)
                return
            await self.pause()
        self._note(topic, ids, "unknown" if is_unknown else "fail")

    def _note(self, topic: str, ids: list[str], outcome: Outcome, *, seqs: Sequence[int] = ()) -> None:
        self._history.produce(ids, outcome, at=self._now_ms(), topic=topic, by=self.name, seqs=seqs)


class Held(NamedTuple):
    """A job of a claim: when it was claimed, and how often its worker was lost before."""

    seq: int
    lease: str
    at: int
    lost: int = 0


Settling = Literal["ack", "nack", "return_jobs"]


class Worker(Client):
    """Claims jobs under durable leases, and acks, nacks, extends or forgets them."""

    @property
    def node(self) -> str:
        """The name under which it holds jobs now."""
        return self.name

    async def run(self) -> None:
        while True:
            await self.pause()
            jobs = await self.claim(self._random.choice((1, 2, 4)))
            choice = self._random.random()
            if not jobs or choice < 0.05:
                continue  # now and then a worker forgets its jobs
            if choice < 0.2:
                await asyncio.sleep(self._random.uniform(0, LEASE_MS / 500))
            if choice < 0.35:
                await self._extend(jobs)
            await self.settle("nack" if choice > 0.85 else "ack", jobs)

    async def claim(self, count: int, lease_ms: int = LEASE_MS, **isolation: Unpack[Isolation]) -> list[Held]:
        """Claim, and record what is delivered at the time at which it was decided."""
        decided = [0]

        def act(broker: Broker) -> Awaitable[Grant]:
            decided[0] = self._now_ms()
            return broker.claim(JOBS, node=self.node, max_count=count, lease_ms=lease_ms, **isolation)

        try:
            grant = await self.call(act)
        except (TenureError, Unknown):
            return []
        at, lease = decided[0], grant.lease_id or ""
        for job in grant.jobs:
            self._history.delivery(
                JOBS,
                job.seq,
                id_of(job.data),
                lease=lease,
                node=self.node,
                deliveries=grant.deliveries(job.seq),
                at=at,
                deadline=at + lease_ms,
                tries=grant.tries.get(job.seq, 0),
            )
        return [Held(job.seq, lease, at, grant.lost.get(job.seq, 0)) for job in grant.jobs]

    async def settle(self, what: Settling, jobs: list[Held]) -> None:
        """Send it until its outcome is known, or give up; an earlier copy may have done what a later one skips."""
        node, seqs, lease, at = self.node, [job.seq for job in jobs], jobs[0].lease, self._now_ms()
        is_unknown = False

        def act(broker: Broker) -> Awaitable[Settled]:
            settle: Callable[..., Awaitable[Settled]] = getattr(broker, what)
            return settle(JOBS, node=node, seqs=seqs, lease_id=lease)

        try:
            for _ in range(4):
                try:
                    settled = await self.call(act)
                except Unknown:
                    is_unknown = True
                except TenureError:
                    await self.pause()
                else:
                    skipped: Outcome = "unknown" if is_unknown else "fail"
                    self._note(what, jobs, at, dict.fromkeys(settled.skipped, skipped), otherwise="ok")
                    return
        except asyncio.CancelledError:
            self._note(what, jobs, at, {}, otherwise="unknown")
            raise
        self._note(what, jobs, at, {}, otherwise="unknown" if is_unknown else "fail")

    def _note(
        self,
        what: Settling,
        jobs: list[Held],
        at: int,
        outcomes: dict[int, Outcome],
        *,
        otherwise: Outcome,
    ) -> None:
        note = self._history.ack if what == "ack" else self._history.nack
        for job in jobs:
            note(JOBS, job.seq, lease=job.lease, outcome=outcomes.get(job.seq, otherwise), at=at)

    async def _extend(self, jobs: list[Held]) -> None:
        seqs, lease, at = [job.seq for job in jobs], jobs[0].lease, self._now_ms()
        outcomes: dict[int, Outcome] = {}
        otherwise: Outcome = "unknown"
        try:
            extended = await self.call(
                lambda broker: broker.extend(JOBS, node=self.node, seqs=seqs, lease_ms=LEASE_MS, lease_id=lease)
            )
            outcomes, otherwise = dict.fromkeys(extended.deadlines, "ok"), "fail"
        except TenureError:
            otherwise = "fail"
        except Unknown:
            pass
        finally:  # also where the client is stopped meanwhile
            for job in jobs:
                outcome = outcomes.get(job.seq, otherwise)
                self._history.extend(JOBS, job.seq, lease=lease, outcome=outcome, at=at, deadline=at + LEASE_MS)


class Container(Worker):
    """A worker that isolates its leases: it dies with them, returns them, and begins what was lost before.

    Each of its processes is a node of its own. A successor may say which jobs the last one had begun; otherwise their
    leases run out.
    """

    def __init__(self, name: str, shared: Shared, random: Random) -> None:
        super().__init__(name, shared, random)
        self._lives = 0
        self._taken: list[Held] = []
        """The jobs that this process was given, settled or not."""

    @property
    def node(self) -> str:
        return f"{self.name}.{self._lives}"

    async def run(self) -> None:
        while True:
            await self.pause()
            asked: Isolation = {"isolate": True, "group": self.name, "suspects": self._random.random() < 0.3}
            jobs = await self.claim(self._random.choice((1, 2, 4)), **asked)
            self._taken += jobs
            choice = self._random.random()
            if jobs and choice < 0.2:
                await self.settle("return_jobs", jobs)
            elif jobs and (await self._may_run(jobs)):
                if choice > 0.65:
                    await self._die(jobs)
                else:
                    await self.settle("nack" if choice < 0.3 else "ack", jobs)

    async def _may_run(self, jobs: list[Held]) -> bool:
        """Begin a job that was lost before; return whether what was claimed may be run. It is not repeated."""
        careful = [job for job in jobs if job.lost]
        if not careful:
            return True
        seq, lease = careful[0].seq, careful[0].lease
        with suppress(TenureError, Unknown):
            await self.call(lambda broker: broker.begin(JOBS, node=self.node, seq=seq, lease_id=lease))
            return True
        await self.settle("return_jobs", jobs)
        return False

    async def _die(self, jobs: list[Held]) -> None:
        """End this process; the next one may say what became of its jobs."""
        gone, taken, at = self.node, self._taken, self._now_ms()
        begun = [job.seq for job in jobs if job.lost or self._random.random() < 0.5]
        self._lives, self._taken = self._lives + 1, []
        if self._random.random() < 0.5:
            return
        for job in taken:
            self._history.release(JOBS, job.seq, lease=job.lease, at=at)
        with suppress(TenureError, Unknown):
            await self.call(lambda broker: broker.end_node(JOBS, node=gone, seqs=begun, exit_code=137))


class Reader(Client):
    """Reads where the log ends, at one member: an answer knows all that was acknowledged before it was decided, and
    comes from no earlier epoch than one before it.

    Each member has its reader, so that one that lost its lead is asked whether or not clients have found the next.
    """

    async def run(self, at: int) -> None:
        while True:
            await self.pause()
            self._at = at
            with suppress(TenureError, Unknown):
                await self.call(self._look)

    async def _look(self, broker: Broker) -> None:
        shared, acked, head = self._shared, max(self._shared.acked, default=0), broker.topic(LOG).head_seq
        epoch = cast("ShippedLog", broker._engine.log).leadership.epoch
        if head < acked:
            message = f"{head} is answered for the head of the log, and {acked} was acknowledged before"
            shared.anomalies.append(Anomaly("stale", message))
        if not shared.epochs or epoch > shared.epochs[-1]:
            shared.epochs.append(epoch)
        elif epoch < shared.epochs[-1]:
            message = f"a read is answered from epoch {epoch}, and one was from epoch {shared.epochs[-1]} before"
            shared.anomalies.append(Anomaly("stale", message))


def id_of(data: bytes | None) -> str:
    """Return the id in a payload."""
    return bytes(data or b"").decode().strip().strip('"')
