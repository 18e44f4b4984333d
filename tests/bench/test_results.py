"""Results: medians and spreads of rounds, kept whole in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.peers.quantile import quantile
from bench.peers.results import read, write
from tests.bench.kit import made_up


def test_a_median_is_not_moved_by_one_disturbed_round():
    results = made_up(produce_1={"tenure": [100.0, 101.0, 5.0]})
    assert results.median("produce-1", "tenure") == 100.0


def test_a_spread_is_the_distance_of_the_rounds_over_the_median():
    assert made_up(produce_1={"tenure": [90.0, 100.0, 120.0]}).spread("produce-1", "tenure") == pytest.approx(0.3)


def test_a_peer_without_a_figure_has_no_median():
    results = made_up(produce_1={"tenure": [1.0]})
    assert results.median("produce-1", "beanstalkd") is None
    assert results.median("claim-1", "tenure") is None


def test_figures_of_rounds_are_gathered_by_cell_and_peer():
    results = made_up()
    results.add("tenure", {"claim-1": 1.0, "claim-100": 2.0})
    results.add("tenure", {"claim-1": 3.0})
    assert results.figures == {"claim-1": {"tenure": [1.0, 3.0]}, "claim-100": {"tenure": [2.0]}}


def test_results_are_read_as_they_were_written(tmp_path: Path):
    results = made_up(produce_1={"tenure": [1.5, 2.5]})
    write(results, tmp_path / "new" / "results.json")
    assert read(tmp_path / "new" / "results.json") == results


def test_a_quantile_is_one_of_the_values_and_of_none_an_error():
    assert (quantile([3.0, 1.0, 2.0], 0.5), quantile([1.0, 2.0], 0.99)) == (2.0, 2.0)
    with pytest.raises(ValueError):
        quantile([], 0.5)
