"""Errors, statuses and exit codes: one place says which belong together."""

from __future__ import annotations

import pytest

from tenure import errors
from tenure.contract.statuses import KIND_OF_STATUS, STATUS_OF_CODE
from tenure.errors import TenureError

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TenureError)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_has_a_status_and_an_exit_code_that_is_not_success(kind: type[TenureError]):
    assert 400 <= kind.status < 600
    assert 1 <= kind.exit_code <= 8


@pytest.mark.parametrize("kind", KINDS)
def test_a_status_stands_for_its_error_where_no_code_says_more(kind: type[TenureError]):
    if kind.status not in (500, 503):  # several errors share these: the code distinguishes them
        assert KIND_OF_STATUS[kind.status] is kind


def test_every_status_that_a_code_has_of_its_own_stands_for_an_error():
    assert set(STATUS_OF_CODE.values()) <= set(KIND_OF_STATUS)
