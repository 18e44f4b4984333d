"""How a home begins: the genesis first, then `home.json`."""

from __future__ import annotations

import pytest

from tests.chain.model.genesis import GenesisRules, run_genesis

VARIANTS = {
    "home.json is created before the genesis": (GenesisRules(genesis_first=False), "corrupt"),
    "the genesis is read before home.json": (GenesisRules(read_home_first=False), "corrupt"),
    "a home.json without a genesis begins an empty log": (GenesisRules(absent_genesis="create"), "lost"),
    "home.json has the name its writer chose": (GenesisRules(name_from_genesis=False), "conflict"),
}


def test_members_that_begin_at_once_open_one_log_and_call_it_corrupt_only_if_it_was_wiped():
    explored = run_genesis(GenesisRules())
    assert explored.violation is None, str(explored)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_broken_beginning_is_found(name: str):
    rules, kind = VARIANTS[name]
    explored = run_genesis(rules, members=2, crashes=1)
    assert explored.violation is not None
    assert explored.violation.kind == kind, str(explored)
