"""Run random lives for a while: ``python -m tests.lives --seconds 1800 --seed 1``.

Seeds are taken one after the other. The first life in which something happens that must not is told again with ever
fewer steps, and what is left of it is printed with its seed; ``--seed N --seconds 0`` lives that one life again.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import time
from types import FrameType

from tests.lives.anomaly import Anomaly
from tests.lives.runs import Found, run, shrink

STEPS = 250
LIFE_SECONDS_MAX = 60


def give_up(signum: int, frame: FrameType | None) -> None:
    """End a life that does not come back by itself."""
    raise Anomaly("spin", f"the life is not over after {LIFE_SECONDS_MAX} s")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lives", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to go on")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of one life")
    parser.add_argument("--without", default="", help="traits to leave out of every life, comma-separated")
    parser.add_argument("--go-on", action="store_true", help="count anomalies instead of stopping at the first")
    options = parser.parse_args()
    logging.disable()  # what a broker logs of its failing disks is part of the life
    without = [trait for trait in options.without.split(",") if trait]
    end, seed, found = time.monotonic() + options.seconds, options.seed, list[Found]()
    signal.signal(signal.SIGALRM, give_up)
    while True:
        signal.alarm(LIFE_SECONDS_MAX)
        anomaly = run(seed, steps=options.steps, without=without)
        if anomaly is not None:
            found.append(anomaly)
            print(f"seed {seed}: {anomaly.kind}: {anomaly.message}"[:300], flush=True)
            if not options.go_on:
                signal.alarm(0)
                print(shrink(anomaly, without=without))
                return 1
        seed += 1
        if time.monotonic() >= end:
            print(f"{seed - options.seed} lives, {len(found)} with an anomaly")
            return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
