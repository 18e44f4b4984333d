"""A selection of dead letters takes what every one of its conditions takes."""

from __future__ import annotations

import pytest

from tenure.contract.dead_letters import Selection
from tenure.core.tag_match import parse_match


def test_selection_without_conditions_takes_every_letter():
    assert Selection().takes(1, None, "")


@pytest.mark.parametrize(
    "selection",
    [
        Selection(seqs={2}),
        Selection(seqs=frozenset()),
        Selection(match=parse_match("other")),
        Selection(reason_like="timeout"),
        Selection(seqs={1}, match=parse_match("mail"), reason_like="timeout"),
    ],
)
def test_selection_leaves_out_what_one_condition_refuses(selection: Selection):
    assert not selection.takes(1, "mail", "no such address")


def test_selection_takes_what_every_condition_takes():
    assert Selection(seqs={1, 3}, match=parse_match("mail"), reason_like="address").takes(1, "mail", "no such address")
