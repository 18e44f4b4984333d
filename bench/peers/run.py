"""`make bench`: run it, print the tables, and write the page where the run was whole and the machine quiet."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

import msgspec

from bench.peers import page, rounds, table
from bench.peers.cell import GROUPS, groups_of
from bench.peers.environment import HOME, ROOT
from bench.peers.machine import BUSY_CORES_MAX
from bench.peers.registry import chosen
from bench.peers.results import Results, write
from bench.peers.scale import FULL, QUICK, Scale

DOCS = ROOT / "docs" / "benchmarks"


def main() -> None:
    """Read the options, measure, report. A SIGTERM stops every server, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: stopped"))
    options = options_of(sys.argv[1:])
    scale = scale_of(options)
    peers, groups = chosen(_words(options.only)), groups_of(_words(options.cells))
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as home:
        results = rounds.run(peers, groups, scale, home=Path(home), say=_say)
    _print(results)
    is_whole = not (options.quick or options.only or options.cells)
    _keep(results, is_whole=is_whole)


def options_of(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    options = argparse.ArgumentParser(prog="make bench", description=__doc__)
    options.add_argument("--quick", action="store_true", help="a short run, to see that everything works")
    options.add_argument("--only", default="", help="peers, with commas: tenure,redis")
    options.add_argument("--cells", default="", help=f"groups of cells, with commas: {','.join(GROUPS)}")
    options.add_argument("--rounds", type=int, help="how many rounds (5)")
    options.add_argument("--seconds", type=float, help="how long one round of a cell puts or claims (2)")
    options.add_argument("--queued", type=int, help="jobs of the long queue (1,000,000)")
    return options.parse_args(arguments)


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def scale_of(options: argparse.Namespace) -> Scale:
    """Return what was asked for. Raises SystemExit for a number that cannot be meant."""
    scale = QUICK if options.quick else FULL
    asked = {name: value for name in ("rounds", "seconds", "queued") if (value := getattr(options, name)) is not None}
    for name, value in asked.items():
        if value <= 0:
            raise SystemExit(f"bench: --{name} must be more than 0; got {value}")
    if seconds := options.seconds:
        asked |= {"latency_seconds": 4 * seconds, "tasks_seconds": 4 * seconds}
    return msgspec.structs.replace(scale, **asked)


def _say(line: str) -> None:
    print(line, flush=True)


def _print(results: Results) -> None:
    for group in GROUPS:
        if cells := table.cells_with_figures(results, group):
            print(f"\n{group}: medians ± half of the spread of the rounds")
            print(table.terminal(table.rows(results, cells)))
    for kind, named in (("missing", results.missing), ("failed", results.failed)):
        for name, reason in named.items():
            print(f"{kind}: {name}: {reason}")


def place_of(results: Results, *, is_whole: bool) -> Path:
    """Return where results belong: on the page those of a whole run on a quiet machine, under `.bench/` any other."""
    is_quiet = max(results.busy_cores) < BUSY_CORES_MAX
    return DOCS if is_whole and is_quiet else HOME / "results"


def _keep(results: Results, *, is_whole: bool) -> None:
    place = place_of(results, is_whole=is_whole)
    write(results, place / "results.json")
    page.write(results, place)
    print(f"\nwritten: {place.relative_to(ROOT)}/")
    if is_whole and place != DOCS:
        busy = max(results.busy_cores)
        print(f"{busy:.2f} cores were busy with other work (limit {BUSY_CORES_MAX}): the page is not changed")


if __name__ == "__main__":
    main()
