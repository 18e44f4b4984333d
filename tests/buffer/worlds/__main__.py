"""Play worlds of named producers: ``python -m tests.buffer.worlds --seed 1 --worlds 10000``.

Seeds are taken one after the other; the first world in which something happens that must not ends it, and is printed
with its seed. ``--variant`` breaks one rule of the product first.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from contextlib import nullcontext

from tests.buffer.worlds.runs import run
from tests.buffer.worlds.variants import VARIANTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.buffer.worlds", description=__doc__)
    parser.add_argument("--worlds", type=int, default=1_000, help="how many to play")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--variant", choices=[*VARIANTS], help="what to break")
    options = parser.parse_args()
    logging.disable()  # what producers log of their stores is part of the world
    tally = Counter[str]()
    with VARIANTS[options.variant]() if options.variant else nullcontext():
        for seed in range(options.seed, options.seed + options.worlds):
            if (anomaly := run(seed, tally)) is not None:
                print(f"seed {seed}: {anomaly}")
                return 1
    print(", ".join(f"{count:,} {what}" for what, count in tally.most_common()))
    last = options.seed + options.worlds - 1
    print(f"seeds {options.seed} to {last}: no anomaly, {time.process_time():.0f} s of processor time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
