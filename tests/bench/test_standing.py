"""Where Tenure stands: losses are said as plainly as wins."""

from __future__ import annotations

import pytest

from bench.peers.cell import CELLS
from bench.peers.registry import PEERS, TASK_PEERS
from bench.peers.standing import BARS, standings
from tests.bench.kit import made_up


def test_a_rate_is_compared_with_the_best_rival_that_has_leases():
    results = made_up(produce_100={"tenure": [300.0], "redis-list": [900.0], "rq": [50.0], "jetstream": [100.0]})
    [standing] = standings(results)
    assert (standing.rival, standing.ratio, standing.is_met) == ("jetstream", 3.0, True)


def test_less_is_better_where_the_unit_is_a_time():
    [standing] = standings(made_up(latency_p50={"tenure": [2.0], "redis-stream": [1.0], "beanstalkd": [4.0]}))
    assert (standing.rival, standing.ratio, standing.is_met) == ("redis-stream", 0.5, False)


def test_ahead_of_all_and_below_the_bar_is_a_bar_missed():
    [standing] = standings(made_up(produce_100={"tenure": [150.0], "redis-stream": [100.0]}))
    assert (standing.ratio, standing.is_met) == (1.5, False)


def test_no_form_of_tenure_is_a_rival_of_another():
    results = made_up(produce_100={"tenure": [100.0], "tenure-socket": [900.0], "redis-stream": [10.0]})
    assert [standing.rival for standing in standings(results)] == ["redis-stream"]


@pytest.mark.parametrize(("restart_s", "is_met"), [(0.5, True), (0.7, False)])
def test_a_limit_needs_no_rival(restart_s: float, is_met: bool):
    [standing] = standings(made_up(restart={"tenure": [restart_s]}))
    assert (standing.rival, standing.is_met) == (None, is_met)


def test_a_cell_that_only_one_side_has_a_figure_in_is_left_out():
    assert standings(made_up(produce_1={"tenure": [1.0]}, claim_1={"redis-stream": [1.0]})) == []


def test_every_bar_names_a_cell_and_peers_that_exist():
    peers = {peer.name for peer in (*PEERS, *TASK_PEERS)}
    assert {bar.cell for bar in BARS} <= {cell.name for cell in CELLS}
    assert {name for bar in BARS for name in (bar.subject, *bar.rivals)} <= peers
