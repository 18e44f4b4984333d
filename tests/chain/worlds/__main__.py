"""Play worlds of the chain: ``python -m tests.chain.worlds --seed 1 --worlds 100000``.

Seeds are taken one after the other. The first world in which something happens that must not is played again with ever
fewer steps, and what is left of it is printed with its seed; ``--seed N --worlds 1`` plays that one world again.
``--variant`` breaks one rule of the product first.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from contextlib import nullcontext

from tests.chain.worlds.runs import Found, run, shrink
from tests.chain.worlds.variants import VARIANTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chain.worlds", description=__doc__)
    parser.add_argument("--worlds", type=int, default=1_000, help="how many to play")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--whole", action="store_true", help="play with the whole log of the product in every world")
    parser.add_argument("--variant", choices=[*VARIANTS], help="what to break; its worlds have its own traits")
    parser.add_argument("--go-on", action="store_true", help="count anomalies instead of stopping at the first")
    options = parser.parse_args()
    logging.disable()  # what members log of their stores is part of the world
    variant = VARIANTS.get(options.variant)
    traits, is_whole = variant.traits if variant is not None else None, True if options.whole else None
    found, tally = list[Found](), Counter[str]()
    with variant.applied() if variant is not None else nullcontext():
        for seed in range(options.seed, options.seed + options.worlds):
            anomaly = run(seed, traits=traits, is_whole=is_whole, tally=tally)
            if anomaly is None:
                continue
            found.append(anomaly)
            print(f"seed {seed}: {anomaly.kind}: {anomaly.message}"[:300], flush=True)
            if not options.go_on:
                print(shrink(anomaly, traits=traits, is_whole=is_whole))
                return 1
    print(", ".join(f"{count:,} {what}" for what, count in tally.items()))
    print(f"{options.worlds} worlds, {len(found)} with an anomaly, {time.process_time():.0f} s of processor time")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
