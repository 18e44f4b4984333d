"""What happens to a broker in a life: time, its disk, its end."""

from __future__ import annotations

import gc
from random import Random

from tenure.testing.simdisk import CrashMode
from tests.lives import check
from tests.lives.actions import ACTIONS, Action
from tests.lives.anomaly import Anomaly
from tests.lives.life import Life
from tests.lives.scenes import fill_disk, pulse, share

__all__ = ["live"]

MODES: tuple[CrashMode | None, ...] = (None, None, "lost", "torn", "reordered", "kept")


# Time


def pass_time(life: Life, random: Random) -> None:
    """Time passes, and only timers notice: a little, to a deadline, past it, or a long while."""
    ms = random.choice((0, 1, 5, 60, 101, 1_001, _to_deadline(life), _to_deadline(life) + 1, _to_deadline(life) + 2))
    life.say(f"{ms} ms pass")
    life.run_for(ms)


def _to_deadline(life: Life) -> int:
    now = check.log_time(life.engine)
    queues = [topic.queue for topic in life.engine.state.by_id.values() if topic.queue is not None]
    return max(
        0, min((queue.next_change_ms - 1 - now for queue in queues if queue.next_change_ms < now + 10**8), default=0)
    )


def tell_time(life: Life, random: Random) -> None:
    """A test moves its clock by hand, and whatever waits for time is told."""
    ms = random.choice((0, 1, 99, 100, 101, 2_000))
    life.say(f"the clock is moved by {ms} ms")
    life.was_stopped |= not life.loop.is_idle
    life.clock.advance(ms)


def idle(life: Life, random: Random) -> None:
    """Nobody sends anything for a minute; timers alone do what is due."""
    life.say("a minute without commands")
    life.rest()
    before = check.hungry(life, by_the_wall=True)
    life.run_for(60_000 + life.settings.sync_interval_ms)
    if not life.is_read_only and (both := before & check.hungry(life, by_the_wall=True)):
        raise Anomaly("starved", f"{sorted(both)[0]} waits for a minute, and there is a job for it")
    life.rest()


def stop(life: Life, random: Random) -> None:
    """The process is stopped, longer than a lease, while things are under way."""
    ms = random.choice((1, 60, 200, 40_000))
    life.say(f"stopped for {ms} ms")
    life.stop(ms)


def step_wall(life: Life, random: Random) -> None:
    ms = random.choice((-86_400_000, -5_000, -30, 30, 5_000, 3_600_000))
    life.say(f"the wall clock steps by {ms} ms")
    life.clock.step_wall(ms)


# The disk


def slow(life: Life, random: Random) -> None:
    life.disk.sync_ms = random.choice((0, 0, 3, 60, 300, 2_000))
    life.say(f"syncs take {life.disk.sync_ms} ms")


def fail(life: Life, random: Random) -> None:
    life.disk.failing = random.choice(("sync", "pwrite"))
    life.has_failed = True
    life.say(f"{life.disk.failing} fails from now on")


def decay(life: Life, random: Random) -> None:
    life.say(f"a bit flips in {life.disk.decay(random)}")


# The end of a process


def crash(life: Life, random: Random) -> None:
    mode = random.choice(MODES)
    off_ms = random.choice((None, 0, 3_000)) if mode is not None else None
    checkpoints = random.choice((0, 1, 2, 2))
    life.say(f"crash: {mode or 'kill'}, off {off_ms}, {checkpoints} checkpoints")
    life.crash(mode, off_ms=off_ms, checkpoints=checkpoints)


def close(life: Life, random: Random) -> None:
    cancelled_after = random.choice((None, None, 0, 1, 2, 3)) if "cancel" in life.traits else None
    life.say(f"close, cancelled after {cancelled_after}")
    life.close(cancelled_after=cancelled_after)


# Looking closely


def housekeep(life: Life, random: Random) -> None:
    life.rest()
    if not life.is_read_only:
        pulse(life, random)
        check.log_is_trimmed(life.engine)


def rest(life: Life, random: Random) -> None:
    life.say("rest")
    life.rest()


def inspect(life: Life, random: Random) -> None:
    """Fold the log again in every way; sometimes keep a checkpoint aside for later."""
    life.settle()
    engine = life.engine
    if life.is_read_only or life.disk.flips or getattr(engine.log, "_pending", None):
        return
    check.fold_agrees(engine, life.disk.kill(), life.remembered)
    if random.random() < 0.5:
        life.remembered = [*life.remembered, (engine.log.position(), engine.checkpoint())][-3:]


FATES: tuple[tuple[str, float, Action], ...] = (
    ("", 9, pass_time),
    ("told", 4, tell_time),
    ("", 0.7, idle),
    ("stop", 2, stop),
    ("wall", 1.5, step_wall),
    ("slow", 3, slow),
    ("fail", 0.3, fail),
    ("decay", 1, decay),
    ("crash", 1, crash),
    ("close", 0.6, close),
    ("", 4, rest),
    ("", 3, inspect),
    ("", 0.6, housekeep),
    ("full", 1, fill_disk),
    ("share", 0.6, share),
)


class Course:
    """The steps of one seed."""

    def __init__(self, life: Life) -> None:
        self.life = life
        random = Random(f"course {life.seed}")
        chosen = [(weight, action) for trait, weight, action in (*ACTIONS, *FATES) if not trait or trait in life.traits]
        self.actions = [action for _, action in chosen]
        self.weights = [weight * random.choice((0.3, 1, 1, 3)) for weight, _ in chosen]

    def step(self, number: int) -> None:
        """Take one step: something happens, the loop turns a little, and everything is looked at."""
        life, random = self.life, Random(f"step {self.life.seed} {number}")
        [action] = random.choices(self.actions, self.weights)
        life.random = random
        life.witness.new_turn()
        action(life, random)
        if life.has_failed and life.is_read_only and random.random() < 0.1:
            crash(life, random)
        turns = random.choice((0, 0, 1, 2, None))
        if turns is None:
            life.settle()
        else:
            life.turns(turns)
        life.look()


def live(life: Life, steps: list[int]) -> None:
    """Live through these steps, then come to an end in peace: every job can be had, and the directory opens."""
    course = Course(life)
    for number in steps:
        course.step(number)
    end(life)


def end(life: Life) -> None:
    life.say("the end")
    life.disk.capacity_bytes, life.disk.failing, life.disk.sync_ms = None, None, 0
    if life.has_failed or life.disk.flips:
        life.crash(None)
    life.rest()
    life.run_for(1)
    for stream in list(life.streams):
        stream.close()
    life.run_for(86_400_000 + 60_000)
    life.run_for(max(0, _last_delivery_ms(life) - life.clock.wall_ms()))
    life.rest()
    pulse(life, life.random)
    check.log_is_trimmed(life.engine)
    drain(life)
    life.look()
    life.rest()
    gc.collect()
    life.look()
    life.close()


def _last_delivery_ms(life: Life) -> int:
    """The latest ``deliver_at`` of any job, which a wall clock set back may have put off by days."""
    queues = [topic.queue for topic in life.engine.state.topics.values() if topic.queue is not None]
    return max((entry >> 64 for queue in queues for entry in queue.delays.by_wall), default=0)


def drain(life: Life) -> None:
    """Claim and ack everything; parked jobs are redriven first."""
    broker = life.broker
    for name, topic in sorted(life.engine.state.topics.items()):
        if topic.queue is None:
            continue
        for _ in range(60 if "decay" in life.traits else 500):
            life.run_for(1_100)
            if topic.queue.parked:
                broker.redrive(name, limit=100)
            call = life.call("claim", name, lambda name=name: broker.claim(name, node="drain", max_count=20))  # type: ignore[misc]
            assert call is not None
            call.wait_ms = topic.config.claim_jitter_ms
            life.run_for(topic.config.claim_jitter_ms + 5)
            life.settle(hurry=True)
            claimed = call.task.result()
            if not claimed.jobs and not topic.queue.parked and not topic.count:
                break
            if claimed.jobs:
                broker.ack(name, node="drain", seqs=claimed.seqs)
        if topic.count and "decay" in life.traits:  # what cannot be read cannot be claimed; it can be deleted
            life.call("delete_records", name, lambda name=name: broker.delete_records(name, before_seq=1 << 40))  # type: ignore[misc]
            life.settle(hurry=True)
        if topic.count:
            raise Anomaly("stuck", f"{topic.count} jobs of {name} cannot be had")
