"""The page of a run: where Tenure stands, every table, the plots, settings, machine, and how to repeat it."""

from __future__ import annotations

from pathlib import Path

from bench.peers import plot, table
from bench.peers.cell import GROUPS
from bench.peers.results import Results
from bench.peers.standing import Standing, standings

__all__ = ["page", "write"]

_TITLES = {
    "produce": "Produce: one connection, one call outstanding",
    "claim": "Claim and ack: one connection, one call outstanding",
    "both": "Both at once: one process puts, another claims and acks; jobs acked",
    "concurrent": "Concurrent producers: 32 connections, one job a call",
    "latency": "End to end at 500 jobs a second: from the put to a consumer that holds the job",
    "million": "A queue of {queued:,} jobs: memory of the server, and from its start to the first job acked",
    "tasks": "Whole tasks: one worker process, from the first handler to the last, tasks queued beforehand",
    "idle": "An idle worker: from the put to the handler",
}
_INTRO = """# Benchmarks

Tenure beside the queues and task frameworks that it is compared with, in one run on one machine. Every server is
started by the harness on loopback, as durable as it offers and in its fastest sensible setting, and used through its
usual Python client. Jobs are 256 bytes of JSON. Peers take turns within each round, so figures are worth comparing
with each other and with the calibrations beside them, not with another machine. This page is written by the run.

Repeat it with `make bench`; `make bench ARGS="--quick"` is a short one, `--only tenure,redis` picks peers, `--cells
produce` picks groups of cells, `--rounds`, `--seconds` and `--queued` set how much. A whole run on a quiet machine
rewrites this page and `results.json`, and takes about an hour; any other leaves its own under `.bench/results/`.
Servers come from wheels, or from Debian's packages, which are unpacked under `.bench/` and not installed.
"""
_READING = """## Reading it

- A call counts as done when the client has its answer; a put is then on disk. One call is outstanding on a
  connection, unless the cell says otherwise.
- Every figure is the median of the rounds, ± half of the distance between the lowest and the highest. `results.json`
  has all.
- *Bare write + fdatasync* and *bare echo* are calls per second with the same bytes as one call of the cell: what the
  disk and loopback alone would give.
- Leases differ. Redis, and PostgreSQL with a visibility timeout, sync what they hand out; Tenure does where
  `leases_durable` is set, which is a row of its own. A Redis list gives nothing back after a crash, so it is no rival
  of Tenure here. RabbitMQ does not answer acks, so nothing waits for them.
- Concurrent producers are tasks on one loop where the peer has an asynchronous client, and threads where it has none.
- A restart is timed until a job is acked, asked for every 5 ms; Tenure over a bare socket, because its client waits for
  a second or two by itself where a server that is still opening tells it to.
- Memory is what the processes hold without the page cache. Where a server keeps jobs in memory, it grows with the
  queue.
- Everything runs on one machine, so the client competes with the server for the cores; a fast client helps its
  server.
"""
_SYNCS = """*Syncs* are those of the server for one put, and for one claim and ack, counted with `strace -c` while jobs
went one by one."""


def write(results: Results, place: Path) -> None:
    """Write `README.md` and, where there are figures, the two plots."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "README.md").write_text(page(results))
    if results.figures:
        rates = [name for name in ("produce-1", "produce-1000", "claim-1", "claim-1000") if name in results.figures]
        waits = [name for name in ("latency-p50", "latency-p99", "idle-p50") if name in results.figures]
        (place / "throughput.svg").write_text(plot.of_cells(results, rates, "Jobs per second, durable; more is better"))
        (place / "latency.svg").write_text(plot.of_cells(results, waits, "Latency in ms, durable; less is better"))


def page(results: Results) -> str:
    """Return the page in Markdown."""
    parts = [_INTRO]
    if results.figures:
        plots = "![Jobs per second](throughput.svg)\n\n![Latency](latency.svg)\n"
        parts += [plots, _standing(results), _tables(results), _READING, _settings(results), _machine(results)]
    else:
        parts += ["## Figures\n\nNot yet measured on a quiet machine.\n", _READING, _settings(results)]
    if results.missing or results.failed:
        parts.append(_absent(results))
    return "\n".join(parts)


def _standing(results: Results) -> str:
    rows = [["", "Tenure", "the best rival", "ratio", "bar", ""]]
    rows += [_standing_row(results, standing) for standing in standings(results)]
    lead = "A ratio above 1 is better than the rival, or within the limit, whichever way the unit goes."
    return f"## Where Tenure stands\n\n{lead}\n\n{table.markdown(rows)}\n"


def _standing_row(results: Results, standing: Standing) -> list[str]:
    subject = results.peers[standing.bar.subject].title
    rival = "limit" if standing.rival is None else results.peers[standing.rival].title
    return [
        f"{standing.cell.title}, {standing.cell.unit}: {subject}",
        table.figure(standing.figure),
        f"{table.figure(standing.rival_figure)} ({rival})",
        f"{standing.ratio:.2f} ×",
        f"≥ {standing.bar.ratio:g} ×",
        ("ahead" if standing.ratio >= 1 else "behind") + (", met" if standing.is_met else ", **missed**"),
    ]


def _tables(results: Results) -> str:
    parts = []
    for group in GROUPS:
        if cells := table.cells_with_figures(results, group):
            title = _TITLES[group].format(queued=int(results.scale["queued"]))
            parts.append(f"## {title}\n\n{table.markdown(table.rows(results, cells))}\n")
    return "\n".join(parts)


def _settings(results: Results) -> str:
    rows = [["", "server", "client", "settings", "syncs", "calls"]]
    for facts in results.peers.values():
        rows.append([facts.title, facts.version, facts.client, facts.settings, facts.syncs or "–", facts.notes])
    return f"## Settings and versions\n\n{_SYNCS}\n\n{table.markdown(rows, is_text=True)}\n"


def _machine(results: Results) -> str:
    facts = "; ".join(f"{name} {value}" for name, value in results.machine.items())
    busy = f"at most {max(results.busy_cores):.2f} cores busy with other work"
    return f"## Machine\n\n{facts}. {results.date}, {int(results.scale['rounds'])} rounds; {busy}.\n"


def _absent(results: Results) -> str:
    lines = [f"- {name}: not measured: {' '.join(reason.split())}" for name, reason in results.missing.items()]
    lines += [f"- {name}: failed: {' '.join(reason.split())}" for name, reason in results.failed.items()]
    return "## Missing\n\n" + "\n".join(lines) + "\n"
