"""Flags, whole numbers and lists of seqs, as strict as the contract and not as lenient as Python."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.contract.values import check_flag, check_seqs, check_whole
from tenure.errors import Invalid


@pytest.mark.parametrize("value", [True, False])
def test_a_flag_is_true_or_false(value: bool) -> None:
    assert check_flag(value, "strict") is value


@pytest.mark.parametrize("value", [None, 0, 1, "", "true", [], 1.0])
def test_nothing_else_is_a_flag(value: Any) -> None:
    with pytest.raises(Invalid) as error:
        check_flag(value, "strict")
    assert error.value.detail == {"field": "strict"}
    assert error.value.message.startswith("strict must be true or false; got ")


def test_a_whole_number_may_be_as_large_as_it_likes() -> None:
    huge = 10**5000
    assert check_whole(huge, "max") == huge
    assert check_whole(0, "max") == 0


@pytest.mark.parametrize("value", [-1, True, 1.0, "1", None, float("nan"), pytest.param(-(10**5000), id="huge")])
def test_nothing_else_is_a_whole_number(value: Any) -> None:
    with pytest.raises(Invalid) as error:
        check_whole(value, "max")
    assert error.value.detail == {"field": "max"}


def test_the_least_that_will_do_is_said() -> None:
    assert check_whole(1, "limit", least=1) == 1
    with pytest.raises(Invalid, match="1 or more"):
        check_whole(0, "limit", least=1)


@pytest.mark.parametrize("seqs", [[0], [2**64 - 1], (3, 1, 3), range(5, 8), list(range(10))])
def test_seqs_come_in_a_list_a_tuple_or_a_range(seqs: Any) -> None:
    check_seqs(seqs, count_max=10, limit="claim_max")


@pytest.mark.parametrize("seqs", [[], {1}, iter([1]), "1", [True], [1, None], [-1], [2**64], range(0), [1.0]])
def test_nothing_else_is_a_list_of_seqs(seqs: Any) -> None:
    with pytest.raises(Invalid):
        check_seqs(seqs, count_max=10, limit="claim_max")


@pytest.mark.parametrize("seqs", [list(range(11)), range(11), range(10**30)])
def test_too_many_seqs_are_told_apart(seqs: Any) -> None:
    with pytest.raises(Invalid) as error:
        check_seqs(seqs, count_max=10, limit="claim_max")
    assert (error.value.code, error.value.detail) == ("batch_too_large", {"limit": "claim_max", "max": 10})
