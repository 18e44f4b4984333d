"""Rounds: who is measured, in which order, and what happens to a run in which one peer fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.peers import debian
from bench.peers.cell import CELLS, GROUPS, groups_of
from bench.peers.payload import payload, sent_ns
from bench.peers.peer import Missing
from bench.peers.registry import PEERS, TASK_PEERS, chosen
from bench.peers.rounds import in_turn, run, steps_of
from bench.peers.run import options_of, scale_of
from bench.peers.scale import PAYLOAD_BYTES, Scale
from tests.bench.kit import FakePeer

SMALL = Scale(rounds=2, jobs_max=2_000, seconds=10.0, calibration_seconds=0.001, looks_max=0)
GOOD = FakePeer("good", "Good", "", "FakeService", "FakeQueue")
LOSSY = FakePeer("lossy", "Lossy", "", "FakeService", "LossyQueue")
GONE = FakePeer("gone", "Gone", "", "MissingService", "FakeQueue")


def test_each_round_begins_with_another_peer_and_leaves_out_nobody():
    peers = [*PEERS[:3]]
    orders = [[peer.name for peer in in_turn(peers, number)] for number in range(3)]
    assert len({order[0] for order in orders}) == 3
    assert {tuple(sorted(order)) for order in orders} == {tuple(sorted(peer.name for peer in peers))}


def test_peers_are_chosen_by_name_or_by_the_server_they_share():
    assert [peer.name for peer in chosen(["redis", "beanstalkd"])] == ["redis-stream", "redis-list", "beanstalkd"]
    assert len(chosen([])) == len(PEERS) + len(TASK_PEERS)


def test_a_word_that_names_no_peer_or_cell_is_answered_with_those_there_are():
    with pytest.raises(SystemExit, match="no peer is called 'kafka'; there are tenure, "):
        chosen(["kafka"])
    with pytest.raises(SystemExit, match="no group of cells is called 'speed'; there are produce, "):
        groups_of(["speed"])


def test_a_shorter_round_has_shorter_watches_too():
    scale = scale_of(options_of(["--seconds", "0.5", "--rounds", "2"]))
    assert (scale.rounds, scale.seconds, scale.latency_seconds, scale.tasks_seconds) == (2, 0.5, 2.0, 2.0)


@pytest.mark.parametrize("option", ["rounds", "seconds", "queued"])
def test_a_number_that_measures_nothing_is_refused_by_its_name(option: str):
    with pytest.raises(SystemExit, match=f"--{option} must be more than 0; got 0"):
        scale_of(options_of([f"--{option}", "0"]))


def test_every_group_that_a_peer_takes_part_in_has_cells():
    taken = {group for peer in (*PEERS, *TASK_PEERS) for group in peer.groups}
    assert taken == set(GROUPS) == {cell.group for cell in CELLS}


def test_a_job_has_256_bytes_and_carries_the_time_it_was_sent():
    job = payload(123_456_789)
    assert (len(job), sent_ns(job)) == (PAYLOAD_BYTES, 123_456_789)
    assert sent_ns(job.replace(b" ", b"")) == 123_456_789


def test_a_peer_that_fails_or_is_missing_is_named_and_the_others_are_measured(tmp_path: Path):
    said: list[str] = []
    groups = frozenset({"produce", "claim"})
    results = run([LOSSY, GONE, GOOD], groups, SMALL, home=tmp_path, say=said.append)
    assert results.missing == {"gone": "no such package"}
    assert "the queue is empty after" in results.failed["lossy, claim and produce"]
    assert {cell: len(by_peer["good"]) for cell, by_peer in results.figures.items()} == {
        f"{verb}-{batch}": 2 for verb in ("produce", "claim") for batch in (1, 100, 1_000)
    }
    assert all("lossy" not in by_peer for by_peer in results.figures.values())
    assert {len(rates) for rates in (*results.syncs_per_s.values(), *results.echoes_per_s.values())} == {2}


def test_a_long_queue_is_filled_in_the_first_rounds_only():
    scale = Scale(rounds=5, queued_rounds=2)
    steps = [steps_of(frozenset({"million", "both"}), number, scale) for number in range(3)]
    assert [frozenset({"million"}) in each for each in steps] == [True, True, False]
    assert all(frozenset({"both"}) in each for each in steps)


def test_a_claim_that_was_not_asked_for_is_not_measured(tmp_path: Path):
    results = run([LOSSY], frozenset({"produce"}), SMALL, home=tmp_path, say=lambda _: None)
    assert (set(results.figures), results.failed) == ({"produce-1", "produce-100", "produce-1000"}, {})


def test_a_program_that_nobody_can_give_is_missing_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr(debian, "HOME", tmp_path)
    with pytest.raises(Missing, match="install beanstalkd"):
        debian.program("beanstalkd", "beanstalkd")
