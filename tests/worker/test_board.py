"""The board: what a process runs, as its supervisor and its successor read it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tenure.worker.processes.board import Board, Record, State, private_places
from tenure.worker.processes.deaths import describe_death, describe_exit


@pytest.fixture
def board() -> Iterator[Board]:
    made = Board.make("test")
    yield made
    made.close()


def test_a_board_that_was_never_taken_is_empty(board: Board):
    assert board.read() == Record()
    assert board.bury(-9) is None


def test_jobs_are_on_the_board_from_their_start_to_their_end(board: Board):
    places = board.take("node", {"mail": 2, "pages": 3})
    first, second = places["mail"].enter(17), places["mail"].enter(2**64 - 1)
    places["pages"].enter(4)
    assert board.read() == Record(State.WORKING, 0, "node", {"mail": [17, 2**64 - 1], "pages": [4]})
    places["mail"].leave(second)
    assert board.read().running == {"mail": [17], "pages": [4]}
    places["mail"].leave(first)
    assert board.read().running == {"pages": [4]}


def test_a_place_may_be_taken_before_its_job_starts(board: Board):
    places = board.take("node", {"mail": 1})
    place = places["mail"].enter(0)
    assert board.read().running == {}
    places["mail"].note(place, 17)
    assert board.read().running == {"mail": [17]}


def test_places_are_used_again(board: Board):
    mail = board.take("node", {"mail": 2})["mail"]
    for seq in range(1, 100):
        place = mail.enter(seq)
        assert board.read().running == {"mail": [seq]}
        mail.leave(place)


def test_what_a_dead_process_left_stays_until_the_successor_takes_over(board: Board):
    board.take("first", {"mail": 4})["mail"].enter(17)
    left = board.bury(-9)
    assert left is not None
    assert left.running == {"mail": [17]}
    assert board.read() == Record(State.GONE, -9, "first", {"mail": [17]})
    assert board.bury(-11) is None, "the successor died before it took over"
    assert board.read().exit_code == -9
    board.take("second", {"mail": 4})
    assert board.read() == Record(State.WORKING, 0, "second")


def test_a_process_that_ends_well_leaves_nothing(board: Board):
    board.take("node", {"mail": 4})["mail"].enter(17)
    board.clear()
    assert board.read() == Record()
    assert board.bury(0) is None


@pytest.mark.parametrize("rest", [b"", b"\x01", b"\x01\0\0\0" * 3, b"\xff" * 4_096])
def test_a_board_that_its_process_destroyed_is_empty(board: Board, rest: bytes):
    board.take("node", {"mail": 4})["mail"].enter(17)
    os.pwrite(board.fd, rest, 0)
    os.ftruncate(board.fd, len(rest))
    assert board.read().running == {}
    assert board.bury(-9) is None


def test_places_of_a_process_without_a_supervisor_are_its_own():
    places = private_places(2)
    taken = [places.enter(1), places.enter(2)]
    for place in taken:
        places.leave(place)
    assert sorted([places.enter(3), places.enter(4)]) == sorted(taken)


def test_a_long_list_of_jobs_is_cut():
    running = {"mail": list(range(1, 9)), "pages": [1, 2, 3], "more": [1]}
    said = describe_death(-11, Record(running=running))
    assert said.endswith("12 jobs, one of which may be why: 1, 2, 3, 4, 5, 6, 7, 8 of mail; 1, 2 … of pages; …")


def test_exits_are_described():
    assert describe_exit(3) == "ended with exit code 3"
    assert describe_exit(-9) == "was ended by SIGKILL"
    assert describe_exit(-200) == "was ended by signal 200"
    assert describe_death(-9, None) == "was ended by SIGKILL"
