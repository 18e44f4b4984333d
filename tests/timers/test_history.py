"""Twenty thousand timers, and workers killed at random: nothing lost, and twice only where a lease was lost."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from redis.asyncio import Redis

from tenure.timers import NewTimer, Timers, TimersSettings
from tests.timers.dying_workers import TOPIC

TIMERS = 20_000
SEED = 7
ROOT = Path(__file__).parents[2]


@dataclass
class Seen:
    """What workers wrote about one timer: the deliveries they handled, and those they were told are committed."""

    handled: list[int] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)


def read(home: Path) -> dict[str, Seen]:
    seen: dict[str, Seen] = defaultdict(Seen)
    for path in home.glob("*.log"):
        for line in path.read_text().splitlines():
            word, *rest = line.split()
            if word in ("handled", "committed"):
                getattr(seen[rest[0]], word).append(int(rest[1]))
    return seen


async def test_every_timer_is_handled_and_twice_only_where_a_lease_was_lost(redis_port: int, tmp_path: Path):
    prefix = f"t-{os.urandom(6).hex()}"
    client = Redis(port=redis_port)
    async with Timers(client, prefix=prefix, settings=TimersSettings()) as timers:
        dice = random.Random(SEED)
        ids = [str(number) for number in range(TIMERS)]
        await timers.schedule_many(
            TOPIC, [NewTimer(payload=one, delay=dice.randrange(4_000), timer_id=one) for one in ids]
        )
        args = (sys.executable, "-m", "tests.timers.dying_workers", str(redis_port), prefix, str(tmp_path), str(SEED))
        process = await asyncio.create_subprocess_exec(*args, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        stats = await timers.stats(TOPIC)
    await client.aclose()

    assert process.returncode == 0
    seen = read(tmp_path)
    assert sorted(seen) == sorted(ids), "every timer is handled"
    for timer_id, what in seen.items():
        assert len(set(what.handled)) == len(what.handled), f"{timer_id}: one delivery, two workers"
        assert len(what.committed) <= 1, f"{timer_id}: committed twice"
        assert not what.committed or max(what.handled) == what.committed[0], f"{timer_id}: handled after its commit"
    again = sum(len(what.handled) - 1 for what in seen.values())
    assert again <= stats.lapsed_total, "a second delivery is always that of a lapsed lease"
    assert (stats.committed_total, stats.dead) == (TIMERS, 0)
    print(f"{TIMERS} timers, {int(out)} workers killed, {stats.lapsed_total} leases lost, {again} handled again")
    assert int(out) > 10
