"""Play lives of whole members: ``python -m tests.chain.members --seed 1 --lives 50000``.

Seeds are taken one after the other. The first life in which something happens that must not is played again with ever
fewer steps, and what is left of it is printed with its seed; ``--seed N --lives 1`` plays that one life again.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter

from tests.chain.members.runs import run, shrink
from tests.chain.worlds.runs import Found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chain.members", description=__doc__)
    parser.add_argument("--lives", type=int, default=100, help="how many to play")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--go-on", action="store_true", help="count anomalies instead of stopping at the first")
    options = parser.parse_args()
    logging.disable()  # what members log of their stores is part of the life
    found, tally = list[Found](), Counter[str]()
    for seed in range(options.seed, options.seed + options.lives):
        anomaly = run(seed, tally=tally)
        if anomaly is None:
            continue
        found.append(anomaly)
        print(f"seed {seed}: {anomaly.kind}: {anomaly.message}"[:300], flush=True)
        if not options.go_on:
            print(shrink(anomaly))
            return 1
    print(", ".join(f"{count:,} {what}" for what, count in tally.items()))
    print(f"{options.lives} lives, {len(found)} with an anomaly, {time.process_time():.0f} s of processor time")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
