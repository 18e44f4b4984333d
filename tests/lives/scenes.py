"""Stretches of a life that no row of single random steps would make: a full disk worked off, and a fair share."""

from __future__ import annotations

from random import Random
from typing import Any

from tenure.contract.commands import Claim
from tenure.contract.replies import Grant
from tests.lives.anomaly import Anomaly
from tests.lives.calls import Call
from tests.lives.life import Life

__all__ = ["fill_disk", "pulse", "share"]

ROUNDS = 16


def fill_disk(life: Life, random: Random) -> None:
    """The disk is full: jobs can still be claimed and acked one by one, and the directory opens (faults 12 and 20)."""
    life.rest()
    queues = [
        name
        for name, topic in sorted(life.engine.state.topics.items())
        if topic.queue is not None and not topic.config.claim_jitter_ms
    ]
    if life.is_read_only or life.disk.flips or not queues:
        return
    name = random.choice(queues)
    life.say("the disk is nearly full")
    life.disk.capacity_bytes = life.disk.used_bytes() + random.choice((0, 300, life.settings.segment_bytes))
    life.is_full = True
    _fill(life, name, size=random.choice((10, 100, 500)))
    _work_off(life, name, count=random.choice((3, 100)))
    if random.random() < 0.5:
        for _ in range(random.choice((1, 5))):
            life.say("kill -9 on a full disk")
            life.crash(None)
    life.say("there is room again")
    life.is_full, life.disk.capacity_bytes = False, None


def _fill(life: Life, name: str, *, size: int) -> None:
    for _ in range(100):
        life.made += 1
        data = b'"%d%s"' % (life.made, b"." * size)
        if life.call("produce", name, lambda data=data: life.broker.produce(name, [data])) is None:  # type: ignore[misc]
            return
        life.settle(hurry=True)


def _work_off(life: Life, name: str, *, count: int) -> None:
    for _ in range(count):
        call = life.call("claim", name, lambda: life.broker.claim(name, node="f", lease_ms=30_000), node="f")
        life.settle(hurry=True)
        if call is None or not call.task.done() or call.task.exception() or not call.task.result().jobs:
            return
        seqs = call.task.result().seqs
        life.call("ack", name, lambda seqs=seqs: life.broker.ack(name, node="f", seqs=seqs))  # type: ignore[misc]
        life.settle(hurry=True)


def pulse(life: Life, random: Random) -> None:
    """Something small is written and synced a few times: housekeeping gets its turns, and must get somewhere."""
    life.say("a few small writes")
    life.look_at("put_topic", "pulse", lambda: life.broker.put_topic("pulse", {"cap_records": 1}))
    for _ in range(3):
        life.call("produce", "pulse", lambda: life.broker.produce("pulse", [b"0"]))
        life.call("synced", "", life.broker.synced)
        life.settle(hurry=True)


def share(life: Life, random: Random) -> None:
    """Two queues, two takers each, jobs in turns: everybody gets some."""
    life.rest()
    if life.is_read_only:
        return
    life.say("two queues, two takers each")
    names, takers = ("fair0", "fair1"), ("t0", "t1")
    for name in names:
        life.look_at("put_topic", name, lambda name=name: life.broker.put_topic(name, {"type": "queue"}))  # type: ignore[misc]
    polls: dict[tuple[str, str], Call | None] = {(name, node): None for name in names for node in takers}
    fed = dict.fromkeys(polls, 0)
    for turn in range(ROUNDS):
        if not all(_poll(life, polls, fed, who) for who in polls):
            break
        name = names[turn % 2]
        if life.call("produce", name, lambda name=name: life.broker.produce(name, [b"0"])) is None:  # type: ignore[misc]
            break
        life.settle(hurry=True)
    else:
        if not all(fed.values()):
            raise Anomaly("unfair", f"of {ROUNDS} jobs these got: {fed}")
    for name in names:
        life.call("delete_topic", name, lambda name=name: life.broker.delete_topic(name))  # type: ignore[misc]
    life.settle(hurry=True)


def _poll(life: Life, polls: dict[tuple[str, str], Call | None], fed: dict[Any, int], who: tuple[str, str]) -> bool:
    """Let a taker wait, where it does not; False where it may not."""
    call = polls[who]
    if call is not None and not call.task.done():
        return True
    name, node = who

    def take(claimed: Grant) -> None:
        fed[who] += len(claimed.jobs)
        life.broker.ack(name, node=node, lease_id=claimed.lease_id)

    polls[who] = call = life.call(
        "claim", name, lambda: life.broker.claim(name, node=node, wait_ms=30_000), wait_ms=30_000, node=node
    )
    if call is not None:
        call.then, call.claim = take, Claim(topic=name, node=node)
    return call is not None
