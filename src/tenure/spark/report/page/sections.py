"""The sections of the page, each from its rows to HTML."""

from __future__ import annotations

from typing import Final

from tenure.spark.report.buckets import DURATIONS_MS, deliveries_label
from tenure.spark.report.model import Figures, Point, QueueRow
from tenure.spark.report.page import plot
from tenure.spark.report.page.markup import Html, card, listing, tag, words
from tenure.spark.report.page.units import amount, clock, duration, moment, share

__all__ = ["sections"]

_REASONS_SHOWN: Final = 10
_JOBS_SHOWN: Final = 10
_WORKERS_SHOWN: Final = 12
_HOW: Final = {
    "released": "given back",
    "returned": "returned untried",
    "expired": "lease ran out",
    "lost": "worker lost",
    "dead_lettered": "dead at once",
}
_OUTCOMES: Final = {"done": "done", "dead": "dead letter", "moved": "moved", "held": "in hand", "waiting": "waiting"}
_COLOURS: Final = {
    **{"released": "released", "returned": "returned", "expired": "expired"},
    **{"lost": "lost", "dead_lettered": "dead"},
}

_WORKED: Final = {"acked": "completed"} | {name: how for name, how in _HOW.items() if name != "dead_lettered"}


def sections(figures: Figures) -> list[Html]:
    """Return everything below the tiles; a section without data is left out."""
    made = [
        _throughput(figures),
        _durations(figures, "wait", "claimed", "Time in the queue", "From produced to the first claim."),
        _durations(figures, "processing", "acked", "Time in processing", "From claim to ack, of what was acked."),
        _queues(figures),
        _returns(figures),
        _deliveries(figures),
        _trouble(figures),
        _poison(figures),
        _workers(figures),
        _dead(figures),
        _idle(figures),
        _gaps(figures),
    ]
    return [each for each in made if each]


def _throughput(figures: Figures) -> Html:
    points = _over_time(figures, None)
    labels = [clock(point.start_ms, step_ms=figures.step_ms) for point in points]
    series = [
        plot.Series("produced", "produced", [point.produced for point in points], filled=True),
        plot.Series("claimed", "claimed", [point.claimed for point in points]),
        plot.Series("completed", "acked", [point.acked for point in points]),
    ]
    about = "Where claimed lies above completed, work is being done twice; where produced does, the queue grows."
    unit = f"jobs per {duration(figures.step_ms)}"
    return card("Jobs over time", plot.lines(series, labels, unit=unit), about=about, anchor="throughput", wide=True)


def _over_time(figures: Figures, queue: str | None) -> list[Point]:
    """Return a point for every step, also where nothing happened."""
    known = {point.start_ms: point for point in figures.points if point.queue == queue}
    if not known:
        return []
    first, last = min(each.start_ms for each in figures.points), max(each.start_ms for each in figures.points)
    nothing = {name: 0 for name in Point.__struct_fields__ if name not in ("queue", "start_ms", "step_ms")}
    return [
        known.get(start) or Point(queue=queue, start_ms=start, step_ms=figures.step_ms, **nothing)
        for start in range(first, last + 1, figures.step_ms)
    ]


def _durations(figures: Figures, measure: str, colour: str, title: str, about: str) -> Html:
    about_all = figures.latency_of(None, measure)
    counts = {each.low_ms: each.jobs for each in figures.classes if each.measure == measure}
    if about_all is None or not counts:
        return card(title, tag("p", "No job has both ends of it in this report.", class_="none"), anchor="time")
    edges = DURATIONS_MS[DURATIONS_MS.index(min(counts)) : DURATIONS_MS.index(max(counts)) + 1]
    values = [counts.get(edge, 0) for edge in edges]
    hints = [f"from {duration(edge)}: {value:,} jobs" for edge, value in zip(edges, values, strict=True)]
    percentiles = [
        ("half within", about_all.p50_ms),
        ("90 %", about_all.p90_ms),
        ("99 %", about_all.p99_ms),
        ("longest", about_all.max_ms),
    ]
    points = words(tag("li", f"{name} ", tag("b", duration(value))) for name, value in percentiles)
    labels = [duration(edge) for edge in edges]
    if len(labels) > 9:
        labels = [label if place % 3 == 0 else "" for place, label in enumerate(labels)]
    drawing = plot.histogram(values, labels, colour=colour, unit="jobs, by how long it took (from …)", hints=hints)
    anchor = "time" if measure == "wait" else ""
    return card(title, tag("ul", points, class_="points"), drawing, about=about, anchor=anchor)


def _queues(figures: Figures) -> Html:
    if not figures.queues:
        return Html()
    heads = ("queue", "over time", "produced#", "completed#", "open#", "not acked#", "dead#", "waits p50 / p99#")
    rows = [_queue(figures, row) for row in figures.queues]
    more = _more(figures.queues_count, len(rows), "queues")
    about = (
        "“Not acked” is the part of its deliveries that ended without an ack. Half the jobs wait, or are worked at, "
        "no longer than p50; one in a hundred longer than p99."
    )
    return card(
        "Each queue", listing((*heads, "works p50 / p99#"), rows, more=more), about=about, anchor="queues", wide=True
    )


def _queue(figures: Figures, row: QueueRow) -> list[object]:
    over_time = [point.produced for point in _over_time(figures, row.queue)]
    spark = plot.sparkline(over_time, colour="produced", hint=f"produced, up to {amount(max(over_time, default=0))}")
    return [
        row.queue,
        spark,
        amount(row.produced),
        amount(row.acked),
        amount(row.held + row.waiting),
        share(row.given_back, row.claimed),
        tag("span", amount(row.dead_lettered), class_="mark bad") if row.dead_lettered else "0",
        _pair(figures, row.queue, "wait"),
        _pair(figures, row.queue, "processing"),
    ]


def _pair(figures: Figures, queue: str | None, measure: str) -> str:
    found = figures.latency_of(queue, measure)
    return f"{duration(found.p50_ms)} / {duration(found.p99_ms)}" if found is not None else "–"


def _returns(figures: Figures) -> Html:
    about = "Each is work that was begun and has to be done again, or given up."
    if not figures.returns:
        return card("Deliveries without an ack", tag("p", "There was none.", class_="none"), anchor="returns")
    rows = [
        plot.Bar(
            f"{each.queue}: {each.reason or _HOW[each.how]}",
            [(_COLOURS[each.how], each.returned)],
            f"{amount(each.returned)} · {duration(each.lost_ms)} lost",
        )
        for each in figures.returns[:_REASONS_SHOWN]
    ]
    used = dict.fromkeys(each.how for each in figures.returns[:_REASONS_SHOWN])
    legend = words(tag("li", tag("i", class_=_COLOURS[how]), _HOW[how]) for how in used)
    more = tag("p", _more(figures.returns_count, len(rows), "reasons"), class_="more")
    body = [tag("ul", legend, class_="legend"), plot.bars(rows), more]
    return card("Deliveries without an ack, by reason", *body, about=about, anchor="returns")


def _deliveries(figures: Figures) -> Html:
    if not figures.deliveries:
        return Html()
    total = sum(each.jobs for each in figures.deliveries)
    rows = [
        plot.Bar(
            "never" if each.low == 0 else "once" if each.low == 1 else f"{deliveries_label(each.low)} times",
            [("acked", each.done), ("dead", each.dead), ("open", each.jobs - each.done - each.dead)],
            f"{amount(each.jobs)} · {share(each.jobs, total)}",
        )
        for each in figures.deliveries
    ]
    legend = words(
        tag("li", tag("i", class_=colour), name)
        for colour, name in (("acked", "done"), ("dead", "dead letter"), ("open", "open, or moved"))
    )
    about = "How often a job was handed out. Once is what one wants."
    return card("Deliveries per job", tag("ul", legend, class_="legend"), plot.bars(rows), about=about)


def _trouble(figures: Figures) -> Html:
    every = figures.all
    if not every.given_back + every.dead_lettered:
        return Html()
    points = _over_time(figures, None)
    labels = [clock(point.start_ms, step_ms=figures.step_ms) for point in points]
    series = [
        plot.Series("given back", "released", [point.released for point in points]),
        plot.Series("returned untried", "returned", [point.returned for point in points]),
        plot.Series("lease ran out", "expired", [point.expired for point in points]),
        plot.Series("worker lost", "lost", [point.lost for point in points]),
        plot.Series("dead letters", "dead", [point.dead_lettered for point in points]),
    ]
    about = "When it went wrong."
    unit = f"jobs per {duration(figures.step_ms)}"
    return card("Trouble over time", plot.lines(series, labels, unit=unit), about=about, wide=True)


def _poison(figures: Figures) -> Html:
    if not figures.poison:
        return Html()
    rows = [
        (
            each.queue,
            each.seq,
            each.deliveries,
            tag("span", _OUTCOMES[each.outcome], class_=f"mark {each.outcome}"),
            each.reason or "–",
            moment(each.last_ms),
        )
        for each in figures.poison[:_JOBS_SHOWN]
    ]
    heads = ("queue", "job#", "deliveries#", "now", "last reason", "last seen (UTC)")
    about = "The jobs that were delivered most often. Look at their data: tenure inspect QUEUE JOB."
    return card("Poison", listing(heads, rows), about=about, anchor="poison", wide=True)


def _workers(figures: Figures) -> Html:
    if not figures.workers:
        return Html()
    total = figures.all.acked
    rows = [
        plot.Bar(
            each.node,
            [(kind, getattr(each, kind)) for kind in _WORKED],
            f"{amount(each.acked)} · {share(each.acked, total)} · {duration(each.held_ms)} in hand",
        )
        for each in figures.workers[:_WORKERS_SHOWN]
    ]
    legend = words(tag("li", tag("i", class_=colour), name) for colour, name in _WORKED.items())
    index = figures.all.jain_acked
    held = figures.all.jain_held
    fair = f"Jain’s index: {index:.2f} by jobs completed" if index is not None else ""
    fair += f", {held:.2f} by time in hand" if fair and held is not None else ""
    about = f"{fair}. 1 means that all did the same, 1/{figures.all.workers} that one did everything." if fair else ""
    more = tag("p", _more(figures.workers_count, len(rows), "workers"), class_="more")
    body = [tag("ul", legend, class_="legend"), plot.bars(rows), more]
    return card("What each worker did", *body, about=about, anchor="workers", wide=True)


def _dead(figures: Figures) -> Html:
    if not figures.dead_letters:
        return Html()
    rows = [
        (each.queue, each.reason or "–", each.dest or "parked or dropped", amount(each.jobs))
        for each in figures.dead_letters
    ]
    more = _more(figures.dead_letters_count, len(rows), "rows")
    about = "Jobs that were taken out of circulation, and where they are now. Put them back with tenure dead redrive."
    heads = ("queue", "reason", "went to", "jobs#")
    return card("Dead letters", listing(heads, rows, more=more), about=about, anchor="dead", wide=True)


def _idle(figures: Figures) -> Html:
    if not figures.idle:
        return Html()
    rows = [(each.queue, amount(each.produced), amount(each.moved_in)) for each in figures.idle]
    more = _more(figures.idle_count, len(rows), "topics")
    about = "Logs, dead-letter topics, or queues that nobody works at. Dead letters are moved in, and not produced."
    heads = ("topic", "produced#", "moved in#")
    return card("Nothing claimed", listing(heads, rows, more=more), about=about, anchor="idle", wide=True)


def _gaps(figures: Figures) -> Html:
    if not figures.gaps:
        return Html()
    rows = [
        (each.queue or "all", each.reason or "–", f"{each.first_batch} – {each.last_batch}", moment(each.at_ms))
        for each in figures.gaps
    ]
    more = _more(figures.gaps_count, len(rows), "gaps")
    about = "Batches of the log whose events were never exported: what happened in them is not in this report."
    heads = ("queue", "reason", "batches of the log", "behind (UTC)")
    return card("Gaps", listing(heads, rows, more=more), about=about, anchor="gaps", wide=True)


def _more(count: int, shown: int, noun: str) -> str:
    return f"and {count - shown:,} more {noun} in the table" if count > shown else ""
