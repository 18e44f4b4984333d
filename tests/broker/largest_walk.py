"""A walk over the commands of a world of largest records, and what its caller knows of deliveries and of room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from tenure import NotFound, Overloaded
from tests.broker.largest_world import LARGEST, OVERHEAD, STAMP, World

__all__ = ["Walk"]

LEASE_MS = 1_000
ONE = ({"cap_records": 1}, {"cap_bytes": LARGEST + STAMP}, {"cap_bytes": LARGEST})
"""Caps of one record; a copy of the largest is above the last, and never goes in."""


class Walk:
    """A world with two queues, dead letters, routers and logs, and what its caller knows of the deliveries of one."""

    def __init__(self, seed: int) -> None:
        world = self.world = World(seed)
        random, broker = world.random, world.broker
        self.random, self.broker = random, broker
        self.granted: Counter[int] = Counter()
        full = {"discard": "reject"}
        strategy = random.choice(("skip", "block", "block_and_dlq"))
        self._put("q", type="queue", lease_ms=LEASE_MS, max_deliveries=2, dead_letter="dead", dlq_strategy=strategy)
        self._put("dead", type=random.choice(("log", "queue")), **full, **random.choice((*ONE, {}, {}, {})))
        self._put("src")
        self._put("dst", **full, **random.choice(ONE))
        self._put("work", type="queue", lease_ms=LEASE_MS, **full, **random.choice((*ONE[:2], {})))
        self._put("s", type="queue", lease_ms=LEASE_MS)
        self._put("log", dedupe_node=True, **random.choice(({}, {"cap_records": 20}, {"ttl_ms": 20_000})))
        world.copies_max = {
            "dead": world.settings.step_bytes_max,
            "dst": world.settings.router_step_bytes,
            "work": world.settings.router_step_bytes,
        }
        for dest in ("dst", "work"):
            world.do(partial(broker.put_router, f"to-{dest}", source="src", dest=dest))
        self.steps: tuple[Callable[[], None], ...] = (
            self.produce,
            self.produce,
            self.claim,
            self.claim,
            self.settle,
            self.reject,
            self.expire,
            self.read,
            self.read_past_own,
            self.wait,
            self.stream,
            self.redrive,
            self.take_from_destination,
            self.delete,
            self.shrink,
            self.drop_topic,
            self.replace_router,
            self.isolate,
            self.look,
        )

    def _put(self, topic: str, **config: object) -> None:
        self.world.do(lambda: self.broker.put_topic(topic, config))

    # Steps

    def produce(self) -> None:
        topic = self.random.choice(("q", "q", "q", "src", "src", "work", "log", "log"))
        for _ in range(self.random.choice((1, 5, 12))):
            self.world.produce(topic, self.random.randint(1, 3))

    def claim(self) -> None:
        for _ in range(self.random.choice((1, 12))):
            grant = self.world.claim("q", node="w", max_count=self.random.choice((1, 2, 1_000)))
            self.granted.update(grant.seqs)

    def settle(self) -> None:
        seqs = self._some_held()
        give = self.broker.ack if self.random.random() < 0.6 else self.broker.nack
        if seqs:
            self.world.do(lambda: give("q", node="w", seqs=seqs))

    def reject(self) -> None:
        """Many at once, which may take many turns. As many become letters as there is room for."""
        for _ in range(self.random.choice((0, 6))):
            self.world.produce("q", 2)
            self.claim()
        seqs, dead, queue = self._some_held(), self.broker.topic("dead"), self.broker.topic("q")
        if not seqs:
            return
        self.world.do(lambda: self.broker.nack("q", node="w", seqs=seqs, dead=True))
        made = self.broker.topic("dead").head_seq - dead.head_seq
        if queue.config.dlq_strategy == "block":
            assert made == 0
        elif dead.config.cap_records:
            assert made == min(len(seqs), dead.config.cap_records - dead.count), f"{made} letters of {len(seqs)}"
        elif not dead.config.cap_bytes:
            assert made == len(seqs), f"{made} letters of {len(seqs)}"

    def _some_held(self) -> list[int]:
        held = [row.seq for row in self.broker.jobs("q", state="in_flight", limit=1_000).items if row.node == "w"]
        return sorted(self.random.sample(held, self.random.randint(0, len(held))))

    def _seqs(self, topic: str, state: str) -> list[int]:
        return [row.seq for row in self.broker.jobs(topic, state=state, limit=1_000).items]

    def expire(self) -> None:
        self.world.advance(self.random.choice((10, LEASE_MS + 1)))

    def read(self) -> None:
        self.world.read_all(self.random.choice(("log", "src", "dst", "dead", "q")))

    def read_past_own(self) -> None:
        """A reader leaves out its own records, however many they are."""
        for _ in range(8):
            self.world.produce("log", 2, node="me")
        self.world.produce("log", 1, node="you")
        self.world.read_all("log", node="me")

    def wait(self) -> None:
        """Long polls of claims and reads, which an append answers."""
        world, broker = self.world, self.broker
        claims = [broker.claim("work", node="p", max_count=100, wait_ms=5_000, auto_ack=True) for _ in range(2)]
        reads = [broker.diff("log", from_seq=broker.topic("log").head_seq, limit=100, wait_ms=5_000) for _ in range(2)]
        tasks = [world.loop.create_task(_await(each)) for each in (*claims, *reads)]
        world.waiting = len(tasks)
        world.settle()
        world.produce("work", 2)
        world.produce("log", 2)
        world.advance(5_001)
        assert all(task.done() for task in tasks)
        for task in tasks[:2]:
            world.check_answer(task.result().jobs, world.settings.claim_bytes_max)
        for task in tasks[2:]:
            world.check_answer(task.result().records, world.settings.diff_bytes_max)
        world.waiting = 0

    def stream(self) -> None:
        """A stream that is read a little, then closed: the rest is given back."""
        world = self.world
        for _ in range(self.random.choice((1, 8))):
            world.produce("s", 2)
        world.waiting = 1
        stream = self.broker.work("s", node="s", max_count=1_000)
        world.settle()
        held = sum(weight for _, weight in world.weights("s", self._seqs("s", "in_flight")))
        few = max(world.settings.claim_bytes_max, LARGEST + STAMP)
        assert held <= 3 * few, "more than what is read next, as much after it, and the answer that passed that"
        for _ in range(self.random.randint(0, 2)):
            answer = stream.take()
            if answer is not None:
                grant = world.do(partial(_await, answer))
                world.check_answer(grant.jobs, world.settings.claim_bytes_max)
                world.do(partial(self.broker.ack, "s", node="s", seqs=grant.seqs))
        stream.close()
        world.settle()
        world.waiting = 0
        assert self.broker.topic("s").queue.in_flight == 0  # type: ignore[union-attr]

    def redrive(self) -> None:
        source = self.random.choice(("q", "dead", "dead"))
        limit = self.random.choice((1, 1_000))
        parked = {row.seq for row in self.broker.jobs("q", state="parked", limit=1_000).items}
        try:
            self.world.do(lambda: self.broker.redrive(source, limit=limit, reset_deliveries=True))
        except (NotFound, Overloaded):
            return
        for row in self.broker.jobs("q", state="ready", limit=1_000).items:
            if row.seq in parked:
                del self.granted[row.seq]

    def take_from_destination(self) -> None:
        """Make room for one record: a router brings the next, and no more than there is room for."""
        info = self.broker.topic("dst")
        if info.count:
            self.world.do(lambda: self.broker.delete_records("dst", before_seq=info.head_seq + 1))
        self.check_routers()

    def delete(self) -> None:
        topic = self.random.choice(("src", "log", "dead"))
        head = self.broker.topic(topic).head_seq
        if topic != "src" or self.broker.router("to-dst").cursor == head == self.broker.router("to-work").cursor:
            self.world.do(lambda: self.broker.delete_records(topic, before_seq=self.random.randint(1, head + 1)))

    def shrink(self) -> None:
        """Lower a cap below what is there: the oldest go, and the newest stays."""
        world, broker = self.world, self.broker
        for _ in range(8):
            world.produce("old", self.random.randint(1, 2), may_be_small=False)
        caps = {"cap_records": self.random.choice((1, 5)), "cap_bytes": LARGEST}
        world.do(lambda: broker.put_topic("old", caps), reads_max=13 * 6_000 + 2 * OVERHEAD)
        info = broker.topic("old")
        assert info.bytes <= LARGEST or info.count == 1
        world.do(lambda: broker.put_topic("old", {}))

    def drop_topic(self) -> None:
        for _ in range(5):
            self.world.produce("gone", 3)
        self.world.do(lambda: self.broker.delete_topic("gone"))

    def replace_router(self) -> None:
        """A router that is made again goes on from now; what it had not copied is copied by no one."""
        self.work_off("work")
        if self.broker.router("to-work").cursor == self.broker.topic("src").head_seq:
            self.world.do(lambda: self.broker.delete_router("to-work"))
            self.world.produce("src", 2)
            self.world.do(lambda: self.broker.put_router("to-work", source="src", dest="work"))

    def isolate(self) -> None:
        """A claim that isolates: a job is begun, some are given back, the others extended, and the worker ends."""
        world, broker = self.world, self.broker
        grant = world.claim("q", node="i", max_count=self.random.choice((1, 1_000)), isolate=True)
        self.granted.update(grant.seqs)
        if not grant.seqs:
            return
        first, rest = grant.seqs[0], grant.seqs[1:]
        lease_id = f"{grant.lease_id}"
        world.do(lambda: broker.begin("q", node="i", seq=first, lease_id=lease_id))
        world.do(lambda: broker.extend("q", node="i", seqs=grant.seqs, lease_ms=LEASE_MS))
        if rest:
            world.do(lambda: broker.return_jobs("q", node="i", seqs=rest[: self.random.randint(1, len(rest))]))
        if self.random.random() < 0.5:
            world.do(lambda: broker.ack("q", node="i", seqs=[first]))
        else:
            world.do(lambda: broker.end_node("q", node="i", seqs=[first]))

    def look(self) -> None:
        """At everything: nothing is written, and no more is read than a record for each job that is asked for."""
        broker, before = self.broker, self.world.disk.written_bytes
        for name in broker.topics().items:
            broker.topic(name)
        for seq in self._seqs("q", "ready")[:3]:
            broker.job("q", seq)
        broker.strip("q")
        broker.leases("q")
        broker.meters("q")
        assert self.world.disk.written_bytes - before < 1_000
        self.world.settle()

    # What must hold

    def check_routers(self) -> None:
        """A router that has not come to the end waits for room: its destination holds as much as it may, or could not
        take the next record.
        """
        for dest in ("dst", "work"):
            router, info = self.broker.router(f"to-{dest}"), self.broker.topic(dest)
            config = info.config
            assert not config.cap_records or info.count <= config.cap_records
            assert not config.cap_bytes or info.bytes <= config.cap_bytes
            if router.cursor < self.broker.topic("src").head_seq:
                assert info.count, f"{router.name} stands still although {dest} is empty"
                weight = self.world.weights("src", [router.cursor + 1])[0][1] + STAMP
                is_full = config.cap_records and info.count == config.cap_records
                assert is_full or info.bytes + weight > config.cap_bytes > 0, f"{dest} has room for the next"

    def check_tries(self) -> None:
        """A delivery was counted for each time that a job was sent, and for nothing else."""
        for state in ("ready", "in_flight", "suspect"):
            for row in self.broker.jobs("q", state=state, limit=1_000).items:
                assert row.deliveries == self.granted[row.seq], f"job {row.seq}: {row} after {self.granted[row.seq]}"

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.random.choice(self.steps)()
            self.world.settle()
            self.check_tries()
            self.check_routers()
        self.drain()

    # The end

    def drain(self) -> None:
        """With room for one record at a time the routers come to their end; with room for all, so do the letters."""
        world, broker = self.world, self.broker
        for _ in range(400):
            if broker.router("to-dst").cursor == broker.router("to-work").cursor == broker.topic("src").head_seq:
                break
            self.take_from_destination()
            self.work_off("work")
        else:
            raise AssertionError("a router has not come to its end")
        world.do(lambda: broker.patch_topic("dead", {"cap_records": 0, "cap_bytes": 0}))
        for _ in range(60):
            world.advance(LEASE_MS + 1)
            self.work_off("q")
            self.redrive_all()
            if not broker.topic("q").count and not broker.topic("dead").count:
                break
        assert (broker.topic("q").count, broker.topic("dead").count) == (0, 0)
        for topic in ("work", "s"):
            self.work_off(topic)
            assert broker.topic(topic).count == 0

    def work_off(self, topic: str) -> None:
        """Claim and ack until nothing is ready: each claim brings a job, or buries one."""
        world, broker = self.world, self.broker
        for _ in range(1_000):
            grant = world.claim(topic, node="w", max_count=1_000)
            if grant.seqs:
                assert world.do(partial(broker.ack, topic, node="w", seqs=grant.seqs)).count
            elif not broker.topic(topic).queue.ready:  # type: ignore[union-attr]
                return
        raise AssertionError(f"{topic} is never worked off")

    def redrive_all(self) -> None:
        for source in ("q", "dead"):
            for _ in range(200):
                redriven = self.world.do(
                    partial(self.broker.redrive, source, limit=1_000, reset_deliveries=True)
                ).redriven
                if not redriven:
                    break


async def _await(answer: Awaitable[Any]) -> Any:
    return await answer
