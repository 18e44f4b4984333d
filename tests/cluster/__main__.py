"""Fail over a real cluster: ``python -m tests.cluster --failovers 300 --seed 1 --state FILE``.

Rounds of some faults each follow one another, each with the next seed, a SeaweedFS and directories of its own. A round
prints its schedule and its verdict. The first that finds something wrong ends the run with exit code 1, and its
history, data and logs are kept. A run that was stopped goes on at its next round where ``--state`` names the same file.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec

from tests.cluster.cluster import cluster_on_files, cluster_on_s3
from tests.cluster.nemesis import FAULTS, NETWORK_FAULTS, schedule
from tests.cluster.round import SETTINGS, Round, play

FAULTS_A_ROUND = 12


class State(msgspec.Struct):
    """How far a run has come."""

    seed: int
    rounds: int = 0
    failovers: int = 0
    bad: int = 0
    acked: int = 0
    produced: int = 0
    faults: dict[str, int] = {}

    def add(self, played: Round) -> None:
        self.seed, self.rounds = self.seed + 1, self.rounds + 1
        self.failovers += played.nemesis.failovers
        self.bad += not played.ok
        if "all" in played.reports:
            self.acked += played.reports["all"].acked
            self.produced += played.reports["all"].produced
        self.faults = dict(Counter(self.faults) + played.nemesis.met)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--failovers", type=int, default=300, help="start no further round after so many")
    parser.add_argument("--seconds", type=float, default=86_400, help="start no further round after so long")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--faults", type=int, default=FAULTS_A_ROUND, help="the faults of one round")
    parser.add_argument("--members", type=int, default=3, help="the members of the cluster")
    parser.add_argument("--only", default="", help="kinds of faults, separated by commas")
    parser.add_argument("--files", action="store_true", help="a directory as the home, without a network to it")
    parser.add_argument("--state", type=Path, help="go on where the run that wrote this file was stopped")
    parser.add_argument("--go-on", action="store_true", help="go on after a round that finds something")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell in the background ignores the first
        signal.signal(number, signal.default_int_handler)
    state = State(options.seed)
    if options.state is not None and options.state.exists():
        state = msgspec.json.decode(options.state.read_bytes(), type=State)
    end = time.monotonic() + options.seconds
    while state.failovers < options.failovers and time.monotonic() < end:
        played = one_round(options, state.seed)
        state.add(played)
        if options.state is not None:
            options.state.write_bytes(msgspec.json.encode(state))
        print(f"so far: {state}", flush=True)
        if not played.ok and not options.go_on:
            return 1
    return 1 if state.bad else 0


def one_round(options: argparse.Namespace, seed: int) -> Round:
    """Play one round and print it; what a bad one leaves is kept."""
    directory = Path(tempfile.mkdtemp(prefix=f"tenure-cluster-{seed}-"))
    kinds = tuple(options.only.split(",")) if options.only else tuple(FAULTS)
    kinds = tuple(kind for kind in kinds if not options.files or kind not in NETWORK_FAULTS)
    faults = schedule(seed, count=options.faults, kinds=kinds)
    print(f"seed {seed}, schedule:", *(f"  {fault}" for fault in faults), sep="\n", flush=True)
    if options.files:
        cluster = cluster_on_files(directory, members=options.members, **SETTINGS)
    else:
        cluster = cluster_on_s3(directory, members=options.members, seed=seed, **SETTINGS)
    with cluster as made:
        played = asyncio.run(play(made, directory, seed=seed, faults=faults))
    print(played.text(), flush=True)
    if played.ok:
        shutil.rmtree(directory)
    else:
        print(f"  history, logs and data are in {directory}", flush=True)
    return played


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
