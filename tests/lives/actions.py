"""What callers do in a life: one function for one step, each drawing what it needs from the step's own random."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tenure.contract.commands import Claim
from tenure.contract.records import Record
from tenure.core import events as e
from tests.lives import check
from tests.lives.calls import DISK, FSYNC, LEVELS, lease_level
from tests.lives.life import Held, Life

__all__ = ["ACTIONS", "Action"]

Action = Callable[[Life, Random], None]

QUEUES = ("q0", "q1", "q2")
LOGS = ("l0", "l1")
LETTERS = ("dead",)
NODES = ("a", "b", "c")
LEASES = (100, 100, 150, 1_000, 30_000)
TAGS = (None, None, "x", "y.1", "y.2")


# Topics


def put_topic(life: Life, random: Random) -> None:
    name = random.choice((*QUEUES, *QUEUES, *LOGS, *LETTERS))
    config = _queue_config(life, random) if name in QUEUES else _log_config(life, random)
    if name in LETTERS:
        config = {"type": random.choice(("log", "queue")), "durability": config["durability"]}
        known = life.broker._state.find(name)
        is_fixed = known is not None and not known.implicit
        config["type"] = known.config.type if known is not None and is_fixed else config["type"]
    life.say(f"put_topic {name} {config}")
    life.call("put_topic", name, lambda: life.broker.put_topic(name, config), level=FSYNC, kinds=(e.TopicPut,))


def patch_topic(life: Life, random: Random) -> None:
    name = random.choice((*QUEUES, *LOGS))
    whole = _queue_config(life, random) if name in QUEUES else _log_config(life, random)
    config = {field: value for field, value in whole.items() if field != "type" and random.random() < 0.2}
    life.say(f"patch_topic {name} {config}")
    life.call("patch_topic", name, lambda: life.broker.patch_topic(name, config), level=FSYNC, kinds=(e.TopicPut,))


def _queue_config(life: Life, random: Random) -> dict[str, Any]:
    pick, traits = random.choice, life.traits
    config: dict[str, Any] = {
        "type": "queue",
        "durability": pick(("fsync", "fsync", "disk", "memory")),
        "lease_ms": pick(LEASES),
        "claim_jitter_ms": pick((0, 0, 0, 5, 200)),
        "max_in_flight": pick((0, 0, 0, 4)),
        "max_ack_holes": pick((0, 0, 0, 2)),
        "retry_backoff": pick((None, None, {"min_ms": 100, "max_ms": 1_000})),
        "idempotency_window_ms": pick((500, 120_000)),
    }
    if "durable leases" in traits:
        config["leases_durable"] = pick((True, True, False))
    if "letters" in traits:
        config |= {
            "max_deliveries": pick((0, 1, 2, 3)),
            "dead_letter": pick((None, "dead", "dead")),
            "dlq_strategy": pick(("skip", "skip", "block", "block_and_dlq")),
        }
    return config | _limits(life, random)


def _log_config(life: Life, random: Random) -> dict[str, Any]:
    return {
        "priority": random.choice((None, None, -1000, 7)),
        "auto_create": random.random() < 0.9,
        "durability": random.choice(("fsync", "disk", "memory")),
        "dedupe_node": random.random() < 0.5,
    } | _limits(life, random)


def _limits(life: Life, random: Random) -> dict[str, Any]:
    if "caps" not in life.traits:
        return {}
    pick = random.choice
    return {
        "ttl_ms": pick((0, 0, 300, 5_000)),
        "cap_records": pick((0, 0, 5, 20)),
        "cap_bytes": pick((0, 0, 2_000)),
        "discard": pick(("old", "reject")),
    }


def delete_topic(life: Life, random: Random) -> None:
    name = random.choice(_topics(life) or ["none"])
    if_empty = random.random() < 0.5
    life.say(f"delete_topic {name} if_empty={if_empty}")
    command = lambda: life.broker.delete_topic(name, if_empty=if_empty)  # noqa: E731
    life.call("delete_topic", name, command, level=FSYNC, kinds=(e.TopicDeleted, e.RouterDeleted))


def _topics(life: Life) -> list[str]:
    return sorted(life.broker._state.topics)


def _queues(life: Life) -> list[str]:
    return [name for name, topic in sorted(life.broker._state.topics.items()) if topic.config.type == "queue"]


# Records


def produce(life: Life, random: Random) -> None:
    names = _topics(life)
    name = random.choice(names) if names and random.random() < 0.95 else random.choice((*QUEUES, *LOGS))
    topic = life.broker._state.find(name)
    records = _records(life, random, is_queue=topic is not None and topic.config.type == "queue")
    named: dict[str, Any] = {}
    if random.random() < 0.15:
        named["idempotency_key"] = f"key-{random.randrange(6)}"
    if random.random() < 0.15:
        client = random.choice(("m", "n", "o"))
        life.client_seqs[client] = life.client_seqs.get(client, 0) + random.choice((0, 1, 1, 1))
        named |= {"client_id": client, "client_seq": life.client_seqs[client]}
    life.say(f"produce {name} {len(records)} {named}")
    durability = topic.config.durability if topic is not None else "disk"
    command = lambda: life.broker.produce(name, records, **named)  # noqa: E731
    life.call("produce", name, command, level=LEVELS[durability], kinds=(e.Appended,))


def _records(life: Life, random: Random, *, is_queue: bool) -> list[bytes | Record]:
    records: list[bytes | Record] = []
    for _ in range(random.choice((1, 1, 1, 2, 5, 12))):
        life.made += 1
        data = b'"%d%s"' % (life.made, b"." * random.choice((0, 0, 30, 200, 900)))
        records.append(data)
    if random.random() < 0.5:
        return records
    record = Record(data=bytes(records.pop()), tag=random.choice(TAGS), node=random.choice((None, "a")))  # type: ignore[arg-type]
    if is_queue and random.random() < 0.6:
        wall = life.clock.wall_ms()
        times: dict[str, Any] = random.choice(
            ({"delay_ms": 50}, {"delay_ms": 500}, {"deliver_at": wall + 200}, {"deliver_at": wall + 9_000})
        )
        record = Record(data=record.data, tag=record.tag, **times)
    if is_queue and random.random() < 0.3:
        return [Record(data=record.data, unique_key=random.choice(("u", "v", "w")), delay_ms=record.delay_ms)]
    return [*records, record]


def delete_records(life: Life, random: Random) -> None:
    names = _topics(life)
    if not names:
        return
    name = random.choice(names)
    topic = life.broker._state.topics[name]
    how = random.choice(
        (
            {"seqs": [random.randint(max(1, topic.floor - 1), topic.head_seq + 1)]},
            {"before_seq": random.randint(topic.floor, topic.head_seq + 1)},
            {"match": "x"},
            {"match": ["tag", "Glob", "y*"]},
        )
    )
    life.say(f"delete_records {name} {how}")
    level = LEVELS[topic.config.durability]
    command = lambda: life.broker.delete_records(name, **how)  # noqa: E731
    life.call("delete_records", name, command, level=level, kinds=(e.Deleted,))


def diff(life: Life, random: Random) -> None:
    names = _topics(life)
    if not names:
        return
    name = random.choice(names)
    topic = life.broker._state.topics[name]
    from_seq = random.choice((0, max(0, topic.floor - 1), topic.head_seq, random.randint(0, topic.head_seq + 2)))
    wait_ms, limit = random.choice((0, 0, 50, 5_000)), random.choice((1, 3, 256))
    node = random.choice((None, "a"))
    life.say(f"diff {name} from {from_seq} wait {wait_ms}")
    command = lambda: life.broker.diff(name, from_seq=from_seq, limit=limit, wait_ms=wait_ms, node=node)  # noqa: E731
    call = life.call("diff", name, command, wait_ms=wait_ms)
    if call is not None:
        call.from_seq = from_seq


# Leases


def claim(life: Life, random: Random) -> None:
    names = _queues(life)
    if not names:
        return
    name = random.choice(names)
    config = life.broker._state.topics[name].config
    alone = random.random() < 0.4
    life.made += 1
    node = f"n{life.made}" if alone else random.choice(NODES)
    wait_ms = random.choice((0, 0, 0, 20, 1_000, 20_000))
    claim_id = f"c{life.made}" if random.random() < 0.4 else None
    options: dict[str, Any] = {
        "max_count": random.choice((1, 1, 2, 5, 12)),
        "lease_ms": random.choice((None, None, *LEASES)),
        "auto_ack": random.random() < 0.05,
    }
    options |= _isolation(life, random)
    if claim_id is not None and not options["auto_ack"]:
        life.claim_ids = [*life.claim_ids, (name, node, claim_id)][-4:]
    _claim(life, name, node, claim_id, wait_ms, config.claim_jitter_ms, alone=alone, **options)


def _isolation(life: Life, random: Random) -> dict[str, Any]:
    """Whether the claim of a worker isolates, and what it asks for."""
    if "losses" not in life.traits or random.random() < 0.4:
        return {}
    return {"isolate": True, "group": random.choice((None, "g", "h")), "suspects": random.random() < 0.3}


def repeat_claim(life: Life, random: Random) -> None:
    """Ask again for a claim whose answer was lost, or is still on its way, or whose lease is nearly over."""
    if not life.claim_ids:
        return
    name, node, claim_id = random.choice(life.claim_ids)
    topic = life.broker._state.find(name)
    if topic is None or topic.queue is None:
        return
    if claim_id in topic.queue.claims and random.random() < 0.5:
        lease = topic.queue.lease(topic.queue.claims[claim_id])
        assert lease is not None
        left_ms = lease.deadline_ms - check.log_time(life.engine) - random.choice((0, 0, 1, 1, 2, -1))
        if left_ms > 0:
            life.say(f"{left_ms} ms pass")
            life.stop(left_ms)
            if random.random() < 0.6:
                produce(life, random)
    _claim(life, name, node, claim_id, random.choice((0, 0, 500)), topic.config.claim_jitter_ms, alone=False)


def _claim(
    life: Life, name: str, node: str, claim_id: str | None, wait_ms: int, jitter_ms: int, *, alone: bool, **options: Any
) -> None:
    life.say(f"claim {name} for {node} id {claim_id} wait {wait_ms} {options}")
    command = lambda: life.broker.claim(name, node=node, claim_id=claim_id, wait_ms=wait_ms, **options)  # noqa: E731
    call = life.call("claim", name, command, wait_ms=max(wait_ms, jitter_ms), node=node)
    if call is not None:
        call.is_alone = alone and claim_id is None
        call.claim = Claim(topic=name, node=node, **options)
        call.then = lambda claimed: life.held.append(Held(claimed, claim_id)) if claimed.lease else None


def ack(life: Life, random: Random) -> None:
    _settle(life, random, "ack", (e.Acked,))


def nack(life: Life, random: Random) -> None:
    dead = "letters" in life.traits and random.random() < 0.3
    options: dict[str, Any] = {"dead": True} if dead else {"delay_ms": random.choice((None, 0, 0, 100, 5_000))}
    _settle(life, random, "nack", (e.Released, e.DeadLettered, e.Appended) if dead else (e.Released,), **options)


def _settle(life: Life, random: Random, what: str, kinds: tuple[type, ...], **options: Any) -> None:
    if not life.held:
        return
    held = random.choice(life.held)
    named = _named(held, random)
    config = _config(life, held.topic)
    if config is None:
        return
    level = LEVELS[config.durability] if what == "ack" or options.get("dead") else lease_level(config)
    life.say(f"{what} {held.topic} by {held.node} {named} {options}")
    command = lambda: getattr(life.broker, what)(held.topic, node=held.node, **named, **options)  # noqa: E731
    life.call(what, held.topic, command, level=level, kinds=kinds)
    if random.random() < 0.8:
        life.held.remove(held)


def return_jobs(life: Life, random: Random) -> None:
    """A worker gives back what it did not run."""
    delay_ms = random.choice((0, 0, 100, 5_000))
    _settle(life, random, "return_jobs", (e.Returned,), delay_ms=delay_ms, reason="drained")


def begin(life: Life, random: Random) -> None:
    """A worker begins a job that it holds, perhaps twice."""
    if not life.held:
        return
    held = random.choice(life.held)
    seq = random.choice(held.seqs)
    life.say(f"begin {held.topic} {seq} by {held.node}")
    for _ in range(random.choice((1, 1, 2))):
        command = lambda: life.broker.begin(held.topic, node=held.node, seq=seq, lease_id=str(held.lease_id))  # noqa: E731
        life.call("begin", held.topic, command, level=DISK, kinds=(e.Begun,))


def end_node(life: Life, random: Random) -> None:
    """A worker has died, and its successor says which jobs it had begun."""
    names = _queues(life)
    if not names:
        return
    node = random.choice([held.node for held in life.held] or NODES)
    mine = [held for held in life.held if held.node == node]
    name = random.choice([held.topic for held in mine] or names)
    seqs = [seq for held in mine if held.topic == name for seq in held.seqs if random.random() < 0.4]
    exit_code = random.choice((None, 137, -9))
    life.say(f"end_node {name} {node} begun {seqs}")
    command = lambda: life.broker.end_node(name, node=node, seqs=seqs, exit_code=exit_code)  # noqa: E731
    life.call("end_node", name, command, kinds=(e.Lost, e.Returned))
    life.held = [held for held in life.held if held not in mine or held.topic != name]


def _named(held: Held, random: Random) -> dict[str, Any]:
    seqs = held.seqs if random.random() < 0.6 else [random.choice(held.seqs)]
    return random.choice(
        (
            {"seqs": seqs},
            {"seqs": seqs, "strict": True},
            {"seqs": seqs, "lease_ids": [held.lease_id] * len(seqs)},
            {"lease_id": held.lease_id},
        )
    )


def _config(life: Life, name: str) -> Any:
    topic = life.broker._state.find(name)
    return topic.config if topic is not None and topic.config.type == "queue" else None


def extend(life: Life, random: Random) -> None:
    """A heartbeat: of the lease, of some jobs, or of each job by itself."""
    if not life.held:
        return
    held = random.choice(life.held)
    config, lease_ms = _config(life, held.topic), random.choice(LEASES)
    if config is None:
        return
    one_by_one = random.random() < 0.5
    ways = [{"seqs": [seq]} for seq in held.seqs] if one_by_one else [_named(held, random)]
    life.say(f"extend {held.topic} by {held.node} {ways} to {lease_ms}")
    for named in ways:
        command = lambda named=named: life.broker.extend(held.topic, node=held.node, lease_ms=lease_ms, **named)  # noqa: E731
        life.call("extend", held.topic, command, level=lease_level(config), kinds=(e.Extended,))


def redrive(life: Life, random: Random) -> None:
    names = _topics(life)
    if not names:
        return
    name = "dead" if "dead" in names and random.random() < 0.6 else random.choice(names)
    options: dict[str, Any] = {"limit": random.choice((1, 3, 100)), "reset_deliveries": random.random() < 0.6}
    if random.random() < 0.2:
        options["to"] = random.choice(names)
    life.say(f"redrive {name} {options}")
    life.call("redrive", name, lambda: life.broker.redrive(name, **options))


# Streams


def open_stream(life: Life, random: Random) -> None:
    names = _queues(life)
    if not names or len(life.streams) > 4:
        return
    name, node = random.choice(names), random.choice(NODES)
    max_count, lease_ms = random.choice((1, 2, 10)), random.choice((None, *LEASES))
    options = _isolation(life, random)
    life.say(f"work {name} for {node} max {max_count} lease {lease_ms} {options}")
    stream = life.look_at(
        "work", name, lambda: life.broker.work(name, node=node, max_count=max_count, lease_ms=lease_ms, **options)
    )
    if stream is not None:
        life.streams.append(stream)


def read_stream(life: Life, random: Random) -> None:
    if not life.streams:
        return
    stream = random.choice(life.streams)
    reading = [call for call in life.calls if call.stream is stream and not call.task.done()]
    if reading:
        return
    name = stream.topic.name
    life.say(f"read the stream of {stream.node} on {name}")
    call = life.call("read", name, stream.__anext__, wait_ms=None, node=stream.node)
    if call is not None:
        call.stream = stream
        call.then = lambda claimed: life.held.append(Held(claimed, None)) if claimed.lease else None


def end_stream(life: Life, random: Random) -> None:
    if not life.streams:
        return
    stream = life.streams.pop(random.randrange(len(life.streams)))
    how = random.choice(("close", "detach"))
    life.say(f"{how} the stream of {stream.node} on {stream.topic.name}")
    if how == "close":
        life.look_at("close", stream.topic.name, stream.close)
    else:
        life.look_at("detach", stream.topic.name, lambda: life.broker.detach(node=stream.node))


# Looking


def look_around(life: Life, random: Random) -> None:
    names, queues, broker = _topics(life), _queues(life), life.broker
    if not names:
        return
    name = random.choice(names)
    life.look_at("topic", name, lambda: broker.topic(name, touch=random.random() < 0.5))
    life.look_at("topics", "", lambda: broker.topics(limit=2))
    if queues:
        queue, state = random.choice(queues), random.choice(("ready", "in_flight", "delayed", "parked", "suspect"))
        life.say(f"look at {name}, {queue}")
        page = life.look_at("jobs", queue, lambda: broker.jobs(queue, state=state, limit=2))
        if page is not None and page.items:
            life.look_at("job", queue, lambda: broker.job(queue, page.items[0].seq))
        life.look_at("leases", queue, lambda: broker.leases(queue, limit=2))
        life.look_at("strip", queue, lambda: broker.strip(queue, head=3, tail=2, leases=2))
        life.look_at("meters", queue, lambda: broker.meters(queue))


def follow_events(life: Life, random: Random) -> None:
    if life.subscriptions and random.random() < 0.7:
        subscription = random.choice(life.subscriptions)
        subscription.drain()
        if random.random() < 0.3:
            life.subscriptions.remove(subscription)
            subscription.close()
        return
    subscription = life.look_at("events", "", lambda: life.broker.events(random.choice((None, *_topics(life)))))
    if subscription is not None:
        life.subscriptions.append(subscription)


def wait_for_sync(life: Life, random: Random) -> None:
    life.say("synced")
    life.call("synced", "", life.broker.synced)


def mark_time(life: Life, random: Random) -> None:
    life.say("mark_time")
    life.look_at("mark_time", "", life.broker.mark_time)


def pin(life: Life, random: Random) -> None:
    batch = random.choice((None, None, life.engine.log.written_batch))
    life.look_at("pin", "", lambda: life.broker.pin(batch, bytes_max=3_000))


# Routers


def put_router(life: Life, random: Random) -> None:
    router, source = random.choice(("r0", "r1")), random.choice((*LOGS, *QUEUES))
    dest = random.choice(("copy", *LOGS, *QUEUES))
    options: dict[str, Any] = {
        "filter": random.choice((None, None, ["tag", "Eq", "x"])),
        "allow_cycle": random.random() < 0.3,
    }
    life.say(f"put_router {router} {source} to {dest} {options}")
    command = lambda: life.broker.put_router(router, source=source, dest=dest, **options)  # noqa: E731
    life.call("put_router", "", command, level=FSYNC, kinds=(e.RouterPut,))


def delete_router(life: Life, random: Random) -> None:
    router = random.choice(("r0", "r1"))
    life.say(f"delete_router {router}")
    life.call("delete_router", "", lambda: life.broker.delete_router(router), level=FSYNC, kinds=(e.RouterDeleted,))


# Callers that go away


def cancel(life: Life, random: Random) -> None:
    waiting = [call for call in life.calls if not call.task.done()]
    if waiting:
        call = random.choice(waiting)
        life.say(f"cancel {call} of {call.node}")
        call.is_cancelled = True
        call.task.cancel()


def claim_and_cancel(life: Life, random: Random) -> None:
    """A caller that is gone before its claim is awaited for the first time."""
    before = len(life.calls)
    claim(life, random)
    for call in life.calls[before:]:
        life.say(f"cancel {call} of {call.node} at once")
        call.is_cancelled = True
        call.task.cancel()


ACTIONS: tuple[tuple[str, float, Action], ...] = (
    ("", 4, put_topic),
    ("", 1, patch_topic),
    ("", 0.6, delete_topic),
    ("", 22, produce),
    ("", 2, delete_records),
    ("", 4, diff),
    ("", 16, claim),
    ("", 5, repeat_claim),
    ("", 9, ack),
    ("", 4, nack),
    ("", 5, extend),
    ("losses", 3, return_jobs),
    ("losses", 6, begin),
    ("losses", 3, end_node),
    ("letters", 3, redrive),
    ("streams", 2, open_stream),
    ("streams", 6, read_stream),
    ("streams", 2, end_stream),
    ("", 2, look_around),
    ("", 1, follow_events),
    ("", 1, wait_for_sync),
    ("", 1, mark_time),
    ("", 0.3, pin),
    ("routers", 2, put_router),
    ("routers", 0.5, delete_router),
    ("cancel", 4, cancel),
    ("cancel", 3, claim_and_cancel),
)
"""The trait that a life needs for it, how often, and what."""
