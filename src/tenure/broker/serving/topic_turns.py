"""Turns of topics by priority, where more of them have changed than one turn of the loop serves.

Three of four places go by priority, the fourth to the topic that has waited longest: so a topic of low priority is
served late and never left out. A topic joins with the priority that it has then; that costs the logarithm of how many
wait, and it is not looked at again while it waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from tenure.core.priority import effective_priority
from tenure.core.state.topic import Topic

__all__ = ["TopicTurns"]

_BY_AGE: Final = 4
"""Of so many places one goes by age."""
_STALE_MIN: Final = 1_000

_Place = tuple[int, int, Topic]
"""A topic's priority below zero, its number, and the topic itself."""


class TopicTurns:
    """Topics that wait for their turn. ``numbers`` has the place of each; an entry with another number is stale."""

    def __init__(self) -> None:
        self._number = count()
        self._numbers: dict[Topic, int] = {}
        self._by_priority: list[_Place] = []
        self._by_age: deque[tuple[int, Topic]] = deque()

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, topics: Iterable[Topic], *, wall_ms: int) -> None:
        """Queue topics; one that waits already keeps its place."""
        for topic in topics:
            if topic not in self._numbers:
                number = self._numbers[topic] = next(self._number)
                heappush(self._by_priority, (-effective_priority(topic, wall_ms), number, topic))
                self._by_age.append((number, topic))
        self._forget_stale()

    def take(self, count_max: int) -> list[Topic]:
        """Return the topics of the next turn, those to be served first at the front."""
        taken: list[Topic] = []
        while self._numbers and len(taken) < count_max:
            taken.append(self._oldest() if len(taken) % _BY_AGE == _BY_AGE - 1 else self._first())
        return taken

    def _first(self) -> Topic:
        while True:
            _, number, topic = heappop(self._by_priority)
            if self._leave(topic, number):
                return topic

    def _oldest(self) -> Topic:
        while True:
            number, topic = self._by_age.popleft()
            if self._leave(topic, number):
                return topic

    def _leave(self, topic: Topic, number: int) -> bool:
        if self._numbers.get(topic) != number:
            return False
        del self._numbers[topic]
        return True

    def _forget_stale(self) -> None:
        """Drop the places of topics that left by the other order, once they outnumber the others."""
        limit = 2 * len(self._numbers) + _STALE_MIN
        if len(self._by_priority) > limit:
            self._by_priority = [place for place in self._by_priority if self._numbers.get(place[2]) == place[1]]
            heapify(self._by_priority)
        if len(self._by_age) > limit:
            self._by_age = deque(place for place in self._by_age if self._numbers.get(place[1]) == place[0])
