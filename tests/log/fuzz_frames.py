"""Fuzz the frame decoder: a log with bytes changed, cut, moved or made up opens or is called Corrupt, and never lies.

`python -m tests.log.fuzz_frames --seconds 600` runs as long as wanted; a failure names its seed.
"""

from __future__ import annotations

import argparse
import random
import time

from tenure.errors import TenureError
from tenure.log.damage.verify import verify
from tenure.log.log import FileLog
from tenure.testing import SimDisk

__all__ = ["fuzz"]

SEGMENT_BYTES = 4096


def fuzz(*, seconds: float, first_seed: int = 0) -> int:
    """Try seeds until the time is up; returns how many. Raises AssertionError where anything is wrong."""
    seed, end = first_seed, time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            _try(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        seed += 1
    return seed - first_seed


def _try(seed: int) -> None:
    rng = random.Random(seed)
    disk = SimDisk(seed)
    bodies = _fill(disk, rng)
    for _ in range(rng.randint(1, 4)):
        _damage(disk, rng)
    try:
        verify(disk)
        log = FileLog.open(disk, segment_bytes=SEGMENT_BYTES)
        try:
            found = [body for kind, _, _, body in log.replay() if kind == 20]
        finally:
            log.close()
    except TenureError:
        return
    assert set(found) <= set(bodies), "a frame that was never written was replayed"
    assert found == bodies[: len(found)], "frames are missing in the middle, and the log opened all the same"


def _fill(disk: SimDisk, rng: random.Random) -> list[bytes]:
    log = FileLog.open(disk, segment_bytes=SEGMENT_BYTES)
    for _ in log.replay():
        pass
    bodies = [b"%06d" % number + rng.randbytes(rng.randint(0, 200)) for number in range(rng.randint(1, 40))]
    for body in bodies:
        log.append_one(20, rng.randint(0, 3), body)
        if rng.random() < 0.4:
            log.write()
        if rng.random() < 0.2:
            log.sync()
    log.close()
    return bodies


def _damage(disk: SimDisk, rng: random.Random) -> None:
    """Change a few bytes, cut the file, write noise, or copy a stretch of it elsewhere."""
    name = rng.choice([name for name in disk.names() if name.startswith("segments/") and name.endswith(".log")])
    content = bytearray(disk.content(name))
    if not content:
        return
    at = rng.randrange(len(content))
    match rng.randrange(4):
        case 0:
            content[at] ^= 1 << rng.randrange(8)
        case 1:
            del content[at:]
        case 2:
            noise = rng.randbytes(rng.randint(1, 64))
            content[at : at + len(noise)] = noise
        case _:
            length, to = rng.randint(1, 400), rng.randrange(len(content))
            content[to : to + length] = content[at : at + length]
    disk.put(name, bytes(content))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--first-seed", type=int, default=0)
    given = parser.parse_args()
    print(fuzz(seconds=given.seconds, first_seed=given.first_seed), "damaged logs, nothing wrong")


if __name__ == "__main__":
    main()
