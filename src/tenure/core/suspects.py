"""Choose the jobs of a claim where suspects wait: jobs whose worker was lost, which are kept apart from the others.

A claim for suspects gets those and nothing else. Any other claim that isolates gets none while such claims come, and
after a while without one a single suspect at a time for its group, so that one more loss takes few jobs with it. A
plain claim, whose contract knows no suspects, gets them last.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from tenure.contract.commands import Claim
from tenure.core.ready_jobs import LETTERS_MAX, choose, room_in_flight, tries_max
from tenure.core.state.queue import Queue
from tenure.core.state.ranges import count, each, to_runs
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.errors import Overloaded
from tenure.settings import Settings

__all__ = ["Choice", "borrow_ms", "choose_for", "isolates", "waiting_count"]


class Choice(NamedTuple):
    """Runs to lease; poisoned jobs, which are dead-lettered first; and worn ones, which are parked: their worker was
    lost too often before they were ever begun.
    """

    runs: list[int]
    poisoned: list[int]
    worn: list[int]


def isolates(state: State, command: Claim) -> bool:
    """Return whether the lease of this claim isolates: it asks for that, and the log can tell so."""
    return command.isolate and not command.auto_ack and "returns" in state.features


def waiting_count(topic: Topic, queue: Queue) -> int:
    """Return how many suspects could be claimed now."""
    line = queue.suspects
    return len(line.ready) if not line.ahead else line.ready.rank(topic.visible_seq)


def borrow_ms(state: State, queue: Queue) -> int:
    """Return the log time from which on claims that do not ask for suspects may have one."""
    return max(queue.suspects.since_ms, state.opened_ms) + state.settings.suspects_wait_ms


def choose_for(state: State, topic: Topic, queue: Queue, command: Claim, max_count: int, *, now_ms: int) -> Choice:
    """Pick up to ``max_count`` jobs for a claim. Raises Overloaded where a cap of the queue forbids handing out any."""
    if command.suspects:
        return _suspects(topic, queue, _within_cap(topic, queue, max_count), state.settings)
    if not queue.suspects.ready:
        return Choice(*choose(topic, queue, max_count), [])
    if not isolates(state, command):
        return _with_suspects_last(topic, queue, _within_cap(topic, queue, max_count), state.settings)
    if now_ms < borrow_ms(state, queue) or queue.is_borrowed(command.group or command.node):
        return Choice(*choose(topic, queue, max_count), [])
    return _with_one_suspect(topic, queue, _within_cap(topic, queue, max_count), state.settings)


def _within_cap(topic: Topic, queue: Queue, max_count: int) -> int:
    in_flight_max = topic.config.max_in_flight
    return min(max_count, room_in_flight(queue, in_flight_max)) if in_flight_max else max_count


def _suspects(topic: Topic, queue: Queue, wanted: int, settings: Settings) -> Choice:
    """Pick suspects, ascending by seq. One that was redriven is visible once its append is durable."""
    limit, pasts = tries_max(topic), queue.suspects.pasts
    seqs: list[int] = []
    poisoned: list[int] = []
    worn: list[int] = []
    for seq in queue.suspects.ready:
        if seq > topic.visible_seq or len(seqs) == wanted or len(poisoned) + len(worn) == LETTERS_MAX:
            break
        past = pasts.get(seq)
        if limit and queue.tries(seq) >= limit:
            poisoned.append(seq)
        elif past.lost >= settings.losses_max and not past.begun:
            worn.append(seq)
        else:
            seqs.append(seq)
    return Choice(to_runs(seqs) if seqs else [], poisoned, worn)


def _with_suspects_last(topic: Topic, queue: Queue, wanted: int, settings: Settings) -> Choice:
    runs, poisoned = list[int](), list[int]()
    with suppress(Overloaded):  # too many holes for fresh work: suspects are not fresh
        runs, poisoned = choose(topic, queue, wanted)
    left = wanted - count(runs)
    found = _suspects(topic, queue, left, settings) if left else Choice([], [], [])
    return Choice(_joined(runs, found.runs), sorted((*poisoned, *found.poisoned)), found.worn)


def _with_one_suspect(topic: Topic, queue: Queue, wanted: int, settings: Settings) -> Choice:
    found = _suspects(topic, queue, 1, settings)
    left = wanted - count(found.runs)
    runs, poisoned = list[int](), list[int]()
    with suppress(Overloaded):
        runs, poisoned = choose(topic, queue, left) if left else ([], [])
    return Choice(_joined(runs, found.runs), sorted((*poisoned, *found.poisoned)), found.worn)


def _joined(runs: list[int], more: list[int]) -> list[int]:
    return to_runs(sorted((*each(runs), *each(more)))) if more else runs
