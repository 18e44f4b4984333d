"""Soak the server: ``python -m tests.soak --seconds 3600 --seed 1``.

Rounds of about a minute follow one another, each with the next seed and a directory of its own. A round prints its
schedule and its verdict. The first that finds something wrong ends the run with exit code 1, and its history, data and
server log are kept; ``--seed N --seconds 0`` plays that round again.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.soak.nemesis import schedule
from tests.soak.round import DISK_FAULTS, Round, play

ROUND_SECONDS = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="start no further round after so long")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--round-seconds", type=float, default=ROUND_SECONDS, help="the faults of one round")
    parser.add_argument("--go-on", action="store_true", help="go on after a round that finds something")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell in the background ignores the first
        signal.signal(number, signal.default_int_handler)
    home = Path(tempfile.mkdtemp(prefix="tenure-soak-"))
    end, seed, bad = time.monotonic() + options.seconds, options.seed, 0
    while True:
        print(f"seed {seed}, schedule:", flush=True)
        for fault in schedule(seed, seconds=options.round_seconds):
            print(f"  {fault}", flush=True)
        played = asyncio.run(play(home / str(seed), seed=seed, seconds=options.round_seconds))
        report(played, home)
        bad += not played.ok
        seed += 1
        if time.monotonic() >= end or (bad and not options.go_on):
            print(f"{seed - options.seed} rounds, {bad} with something wrong")
            if not bad:
                shutil.rmtree(home)
            return 1 if bad else 0


def report(played: Round, home: Path) -> None:
    """Print the verdict of a round; where it is bad, say where everything about it lies."""
    if not played.disk_was_small:
        print(f"  without {', '.join(DISK_FAULTS)}: no file system may be mounted here")
    print(played.text(), flush=True)
    if played.ok:
        shutil.rmtree(home / str(played.seed))
    else:
        print(f"  history.jsonl, server.log and the data are in {home / str(played.seed)}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
