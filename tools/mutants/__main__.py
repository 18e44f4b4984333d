"""`python -m tools.mutants`: try mutants of core, log and broker, and compare who survives with the list.

What is known is kept below `.mutants/`, so a run that was cut goes on from there: which test calls what, and the fate
of each mutant. A fate is believed while the mutated module is the same, a survivor's only while the tests are the
same too. `survivors.toml` gives the reason of every mutant that may survive. A survivor that is not in it fails the
run, and so do a listed one that is killed now and a rate of kills below the bar.

A tool of our own, because mutmut and cosmic-ray write each change into a file and start the interpreter anew for it.
Here a process is forked with the libraries loaded, and it runs those tests alone that call the changed function.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
import tomllib
from pathlib import Path

from tools.mutants.book import Book
from tools.mutants.mutate import Mutant
from tools.mutants.sample import Stage, sample, stages
from tools.mutants.trial import Fate, try_mutant

Plan = tuple[Mutant, list[Stage]]
ROOT = Path(__file__).resolve().parents[2]
SURVIVORS = Path(__file__).with_name("survivors.toml")
KILLED_MIN = 0.95
# Loaded once and forked with: what the tests import that is not ours.
LIBRARIES = ("hypothesis.stateful", "pytest_asyncio", "pytest_timeout", "msgspec", "pyroaring", "crc32c", "asyncio")


def main() -> int:
    """Try what was not tried yet, print what became of all, and return the exit code."""
    args = _arguments()
    os.chdir(ROOT)
    os.environ["CI"] = "true"  # the same examples on every run
    mutants = [mutant for mutant in sample(ROOT, count=args.count, seed=args.seed) if args.match in mutant.name]
    if args.show:
        print(*(mutant.name for mutant in mutants), sep="\n")
        return 0
    for name in LIBRARIES:
        importlib.import_module(name)
    book = Book(ROOT)
    calls = book.calls()
    known = book.fates(mutants)
    todo = [mutant for mutant in mutants if mutant.name not in known]
    plans = [(mutant, stages(mutant, calls, seconds_max=args.seconds)) for mutant in todo]
    _in_processes(plans, book, jobs=args.jobs, until=time.monotonic() + 60 * args.minutes)
    return _report(mutants, book.fates(mutants))


def _in_processes(plans: list[Plan], book: Book, *, jobs: int, until: float) -> None:
    children = []
    for job in range(jobs):
        if child := os.fork():
            children.append(child)
            continue
        for mutant, tests in plans[job::jobs]:
            if time.monotonic() < until:
                _try(mutant, tests, book)
        os._exit(0)
    for child in children:
        os.waitpid(child, 0)


def _try(mutant: Mutant, tests: list[Stage], book: Book) -> None:
    started = time.monotonic()
    fate, count = Fate.SURVIVED, 0
    for stage in tests:
        fate = try_mutant(mutant, stage.tests, seconds=stage.seconds)
        count += len(stage.tests)
        if fate is not Fate.SURVIVED:
            break
    book.note(mutant, fate, tests=count)
    print(f"{fate} ({count} tests, {time.monotonic() - started:.1f} s): {mutant.name}", flush=True)


def _report(mutants: list[Mutant], fates: dict[str, Fate]) -> int:
    reasons = {entry["mutant"]: entry["reason"] for entry in tomllib.loads(SURVIVORS.read_text())["survivor"]}
    alive = [mutant.name for mutant in mutants if fates.get(mutant.name) is Fate.SURVIVED]
    killed = len(fates) - len(alive)
    rate = killed / len(fates) if fates else 0.0
    print(f"\n{len(fates)} of {len(mutants)} mutants tried, {killed} killed: {rate:.1%} (bar {KILLED_MIN:.0%})")
    new = [name for name in alive if name not in reasons]
    dead = [name for name in reasons if fates.get(name, Fate.SURVIVED) is not Fate.SURVIVED]
    for name in new:
        print(f"survived without a reason: {name}")
    for name in dead:
        print(f"killed, yet listed in {SURVIVORS.name}: {name}")
    return 1 if new or dead or rate < KILLED_MIN or len(fates) < len(mutants) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make test-mutants", description="Try mutants of core, log and broker.")
    parser.add_argument("--count", type=int, default=240, help="how many; the same ones for one seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--match", default="", help="only those whose name contains this")
    parser.add_argument("--minutes", type=float, default=240, help="start no other after so long; run again to go on")
    parser.add_argument("--seconds", type=float, default=60, help="processor time of the tests in one stage, at most")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--show", action="store_true", help="print the names and try nothing")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
