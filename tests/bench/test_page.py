"""The page and its plots, written from results."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.peers import page, plot, table
from bench.peers.run import DOCS, place_of
from tests.bench.kit import made_up


@pytest.mark.parametrize(
    ("value", "said"), [(0.1234, "0.12"), (1.0, "1.00"), (45.67, "45.7"), (123.4, "123"), (357_219.0, "357,000")]
)
def test_a_figure_has_three_digits_that_matter(value: float, said: str):
    assert table.figure(value) == said


def test_a_table_has_a_dash_where_a_peer_has_no_figure_and_the_calibrations_below():
    results = made_up(produce_1={"tenure": [10.0, 12.0, 11.0]}, produce_100={"beanstalkd": [5.0]})
    rows = table.rows(results, table.cells_with_figures(results, "produce"))
    assert rows[1] == ["The tenure", "11.0 ± 9 %", "–"]
    assert rows[2] == ["The beanstalkd", "–", "5.00"]
    assert [row[0] for row in rows[3:]] == ["*bare write + fdatasync*, calls/s", "*bare echo*, calls/s"]


def test_a_page_says_behind_and_missed_where_tenure_is():
    said = page.page(made_up(latency_p50={"tenure": [2.0], "redis-stream": [1.0]}))
    assert re.search(
        r"500/s, p50, ms: The tenure \| 2\.00 \| 1\.00 \(The redis-stream\) .* behind, \*\*missed\*\*", said
    )


def test_a_page_without_figures_says_so_and_shows_no_plot():
    results = made_up(produce_1={"tenure": [1.0]})
    results.figures = {}
    said = page.page(results)
    assert "Not yet measured" in said
    assert "sync always" in said
    assert ".svg" not in said


def test_a_peer_that_is_missing_or_failed_is_named_with_the_reason():
    results = made_up(produce_1={"tenure": [1.0]})
    results.missing["rabbitmq-quorum"] = "no such\npackage"
    results.failed["jetstream, latency"] = "TimeoutError"
    said = page.page(results)
    assert "- rabbitmq-quorum: not measured: no such package" in said
    assert "- jetstream, latency: failed: TimeoutError" in said


def test_a_page_is_written_with_the_plots_that_it_shows(tmp_path: Path):
    page.write(made_up(produce_1={"tenure": [1.0]}, latency_p50={"tenure": [2.0]}), tmp_path)
    shown = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", (tmp_path / "README.md").read_text())
    assert sorted(shown) == ["latency.svg", "throughput.svg"]
    for name in shown:
        ElementTree.parse(tmp_path / name)


def test_a_plot_has_a_bar_for_each_value_and_ten_times_more_is_longer_by_one_step():
    drawn = plot.bars("a <title>", [("rates", [("one", 1.0, True), ("ten", 10.0, False), ("hundred", 100.0, False)])])
    widths = [float(width) for width in re.findall(r'<rect x="\d+" y="\d+" width="([\d.]+)"', drawn)]
    assert len(widths) == 3
    assert widths[2] - widths[1] == pytest.approx(widths[1] - 0, abs=3)
    assert ElementTree.fromstring(drawn)[0].text == "a <title>"


def test_a_plot_of_nothing_is_still_a_picture():
    ElementTree.fromstring(plot.bars("nothing", [("rates", [])]))


@pytest.mark.parametrize(("is_whole", "busy", "is_kept"), [(True, 0.1, True), (True, 1.2, False), (False, 0.1, False)])
def test_only_a_whole_run_on_a_quiet_machine_changes_the_page(is_whole: bool, busy: float, is_kept: bool):
    results = made_up()
    results.busy_cores = [0.1, busy]
    assert (place_of(results, is_whole=is_whole) == DOCS) is is_kept
