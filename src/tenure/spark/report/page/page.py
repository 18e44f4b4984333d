"""The report as one self-contained HTML page: no script, no request, inline style and plots."""

from __future__ import annotations

from importlib import resources
from typing import Final

from tenure.spark.report.model import Figures
from tenure.spark.report.page.findings import Finding, findings
from tenure.spark.report.page.markup import Html, tag, words
from tenure.spark.report.page.sections import sections
from tenure.spark.report.page.units import amount, duration, moment, share, shorten

__all__ = ["page"]

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_QUEUES_NAMED_MAX: Final = 10
_LEVELS: Final = {"bad": "Look here.", "warn": "Note.", "good": "All well.", "info": "By the way."}


def page(figures: Figures) -> str:
    """Return the whole document."""
    style = resources.files("tenure.spark.report.page").joinpath("page.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="referrer" content="no-referrer">'),
        tag("title", f"Queue report, {moment(figures.all.first_ms)} UTC"),
        tag("style", Html(style)),
    )
    body = tag(
        "main",
        tag("header", tag("h1", "What the queues did"), tag("p", _span(figures), class_="span")),
        _findings([*_warnings(figures), *findings(figures)]),
        _tiles(figures),
        tag("div", *sections(figures), class_="cards"),
        _footer(figures),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', body), lang='en')}\n"


def _span(figures: Figures) -> str:
    first_ms, last_ms = figures.all.first_ms, figures.all.last_ms
    named = [shorten(queue) for queue in figures.only[:_QUEUES_NAMED_MAX]]
    more = f" and {len(figures.only) - len(named):,} more" if len(figures.only) > len(named) else ""
    only = f". Only {', '.join(named)}{more}" if named else ""
    return f"{moment(first_ms)} to {moment(last_ms)} UTC, {duration(last_ms - first_ms)}{only}"


def _warnings(figures: Figures) -> list[Finding]:
    """Return what makes the report itself incomplete."""
    found = []
    if figures.gaps_count:
        sentence = (
            f"The report is incomplete: {figures.gaps_count:,} {'gap' if figures.gaps_count == 1 else 'gaps'} in the "
            "exported events. Jobs may seem open, or seem to have no beginning, that are done."
        )
        found.append(Finding("bad", sentence, "gaps"))
    if figures.malformed:
        sentence = f"{figures.malformed:,} entries are no lifecycle events, and are left out."
        found.append(Finding("warn", sentence, "footer"))
    return found


def _findings(found: list[Finding]) -> Html:
    return tag(
        "ul",
        *(
            tag("li", tag("a", tag("b", _LEVELS[each.level]), each.sentence, class_=each.level, href=f"#{each.anchor}"))
            for each in found
        ),
        class_="findings",
    )


def _tiles(figures: Figures) -> Html:
    every = figures.all
    wait, work = figures.latency_of(None, "wait"), figures.latency_of(None, "processing")
    again = f"of {amount(every.claimed)} deliveries ended without an ack"
    tiles = [
        _tile(amount(every.produced), "jobs produced"),
        _tile(amount(every.acked), f"jobs completed; {amount(figures.open_jobs)} open at the end"),
        _tile(share(every.given_back, every.claimed), again, "warn" if every.given_back > every.claimed * 0.05 else ""),
        _tile(amount(every.dead_lettered), "dead letters", "bad" if every.dead_lettered else ""),
        _tile(
            duration(wait.p90_ms if wait else None), "in the queue before the first claim, at most, for 9 jobs in 10"
        ),
        _tile(duration(work.p90_ms if work else None), "from claim to ack, at most, for 9 jobs in 10"),
    ]
    return tag("div", *tiles, class_="tiles")


def _tile(value: str, label: str, level: str = "") -> Html:
    return tag("div", tag("b", value), tag("span", label), class_=f"tile {level}".strip())


def _footer(figures: Figures) -> Html:
    every = figures.all
    before = ""
    if every.begun_before:
        before = (
            f" Of {amount(every.begun_before)} jobs the beginning lies before the first event; they count where what "
            "is said of them does not need it."
        )
    lines = [
        f"From {amount(every.rows)} events in {shorten(figures.source, 200)}, "
        f"made {moment(figures.made_ms)} UTC.{before}",
        "Percentiles are within a ten-thousandth of the rank. A delivery ends without an ack when it is given back, "
        "its connection is closed, or its lease runs out. Every figure is defined in “Report tables” of the "
        "reference; the tables beside this page hold more rows and every queue.",
    ]
    return tag("footer", words(tag("p", line) for line in lines), id="footer")
