"""Routers: each copies what is appended to one topic into another, from a cursor that the log keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from tenure.core.tag_match import Match, parse_match

__all__ = ["Router", "find_cycle"]


class Router(msgspec.Struct, kw_only=True):
    """The folded state of one router.

    ``cursor`` is the last source seq passed on, ``missed`` what the source lost first.
    """

    name: str
    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: list[str] | None = None
    allow_cycle: bool = False
    cursor: int = 0
    forwarded: int = 0
    missed: int = 0

    def within(self, reaches: Callable[[str], bool]) -> bool:
        """Return whether a caller reaches the router: its name and both its ends."""
        return reaches(self.name) and reaches(self.source) and reaches(self.dest)

    @property
    def match(self) -> Match | None:
        """Return the condition that the filter sets, or None where it lets everything through."""
        return None if self.filter is None else parse_match(self.filter)


def find_cycle(routers_from: Mapping[str, Sequence[Router]], *, name: str, source: str, dest: str) -> list[str] | None:
    """Return the cycle of topics that the router ``name`` from ``source`` to ``dest`` would close, or None.

    ``routers_from`` has the routers by their source. Only those are looked at that a record would pass.
    """
    trail: dict[str, str] = {dest: source}
    frontier = [dest]
    while frontier:
        topic = frontier.pop()
        if topic == source:
            return _walk_back(trail, source, dest)
        for router in routers_from.get(topic, ()):
            if router.name != name and router.dest not in trail:
                trail[router.dest] = topic
                frontier.append(router.dest)
    return None


def _walk_back(trail: dict[str, str], source: str, dest: str) -> list[str]:
    path, topic = [source], trail[source]
    while topic != source:
        path.append(topic)
        if topic == dest:
            break
        topic = trail[topic]
    return [source, *reversed(path[1:]), source] if len(path) > 1 else [source, dest, source]
