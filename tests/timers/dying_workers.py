"""Workers killed at random until no timer is left: `python -m tests.timers.dying_workers PORT PREFIX DIR SEED`.

Each worker writes what it handles, and what it was told is committed, to a file of its own. One process forks them all,
so that a new one begins at once; it prints how many it killed.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from pathlib import Path

import redis
from redis.asyncio import Redis

from tenure.errors import TenureError
from tenure.timers import Timers, TimersSettings

TOPIC = "history"
WORKERS = 3
LEASE_MS = 400
SETTINGS = TimersSettings(max_deliveries=10_000)


async def work(port: int, prefix: str, log: int) -> None:
    async with Timers(Redis(port=port), prefix=prefix, settings=SETTINGS) as timers:
        while True:
            try:
                held = await timers.claim(TOPIC, max_count=25, lease_ttl_ms=LEASE_MS)
                if not held:
                    await timers.wait(TOPIC)
                    continue
                for timer in held:
                    os.write(log, f"handled {timer.timer_id} {timer.deliveries}\n".encode())
                settled = await timers.commit(TOPIC, held)
            except TenureError as error:
                os.write(log, f"error {error.code}\n".encode())
                continue
            gone = {*settled.lost, *settled.superseded}
            for timer in held:
                word = "lost" if timer.timer_id in gone else "committed"
                os.write(log, f"{word} {timer.timer_id} {timer.deliveries}\n".encode())


def start(port: int, prefix: str, path: Path) -> int:
    pid = os.fork()
    if pid == 0:
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            asyncio.run(work(port, prefix, log))
        finally:
            os._exit(1)
    return pid


def main(port: int, prefix: str, home: Path, seed: int) -> None:
    dice, killed, started = random.Random(seed), 0, 0
    keys = [f"{prefix}:{{{TOPIC}}}:{part}" for part in ("due", "leased")]
    children: list[int] = []
    client = redis.Redis(port=port)
    while any(client.zcard(key) for key in keys):
        while len(children) < WORKERS:
            started += 1
            client.connection_pool.disconnect()  # no child shares a line with us
            children.append(start(port, prefix, home / f"{started}.log"))
        time.sleep(dice.uniform(0.02, 0.15))
        victim = children.pop(dice.randrange(WORKERS))
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        killed += 1
    client.close()
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    print(killed)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
