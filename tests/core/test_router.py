"""Cycles, against walking every path."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tenure.core.state.router import Router, find_cycle
from tenure.core.tag_match import Match

TOPICS = "abcdef"


def routers(edges: list[tuple[str, str]]) -> dict[str, list[Router]]:
    by_source: dict[str, list[Router]] = {}
    for number, (source, dest) in enumerate(edges):
        by_source.setdefault(source, []).append(Router(name=str(number), source=source, dest=dest))
    return by_source


def reaches(edges: list[tuple[str, str]], start: str, end: str) -> bool:
    seen, frontier = {start}, [start]
    while frontier:
        here = frontier.pop()
        if here == end:
            return True
        onward = {dest for source, dest in edges if source == here} - seen
        seen |= onward
        frontier += onward
    return False


EDGE = st.tuples(st.sampled_from(TOPICS), st.sampled_from(TOPICS)).filter(lambda edge: edge[0] != edge[1])
EDGES = st.lists(EDGE, max_size=12)


@given(EDGES, st.sampled_from(TOPICS), st.sampled_from(TOPICS))
def test_a_cycle_is_found_exactly_where_there_is_one(edges: list[tuple[str, str]], source: str, dest: str) -> None:
    if source == dest:
        return
    cycle = find_cycle(routers(edges), name="new", source=source, dest=dest)
    assert (cycle is not None) == reaches(edges, dest, source)
    if cycle is not None:
        steps = list(pairwise(cycle))
        assert steps[0] == (source, dest), "it begins with the one that is asked for"
        assert cycle[-1] == source
        assert all(step in edges for step in steps[1:]), "and every further step is a router"
        assert len(set(cycle[1:])) == len(cycle) - 1


def test_a_router_without_a_filter_lets_everything_through() -> None:
    assert Router(name="r", source="a", dest="b").match is None
    assert Router(name="r", source="a", dest="b", filter=["tag", "Glob", "x*"]).match == Match(prefix="x")
