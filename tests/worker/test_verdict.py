"""Every cell of the table in `tenure.worker.verdict`."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.errors import Invalid
from tenure.worker.backoff import Fixed
from tenure.worker.verdict import (
    ACKED,
    RETURNED,
    Ack,
    AckPolicy,
    Nack,
    NotTried,
    Reject,
    Verdict,
    VerdictKind,
    is_failure,
    verdict_of,
)

ACK_FIRST, ACK, MANUAL = AckPolicy.ACK_FIRST, AckPolicy.ACK, AckPolicy.MANUAL
REJECT_ON_ERROR, NACK_ON_ERROR = AckPolicy.REJECT_ON_ERROR, AckPolicy.NACK_ON_ERROR
NACKED = Verdict(VerdictKind.NACK, 7, "ValueError: no")
REJECTED = Verdict(VerdictKind.REJECT, None, "ValueError: no")


def verdict(error: BaseException | None, policy: AckPolicy, failures: int = 1) -> Verdict | None:
    return verdict_of(error, policy, seq=1, failures=failures, retries=2, backoff=Fixed(7))


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(ACK_FIRST, None), (ACK, ACKED), (REJECT_ON_ERROR, ACKED), (NACK_ON_ERROR, ACKED), (MANUAL, None)],
)
def test_a_handler_that_returns(policy: AckPolicy, expected: Any):
    assert verdict(None, policy) == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(ACK_FIRST, None), (ACK, ACKED), (REJECT_ON_ERROR, REJECTED), (NACK_ON_ERROR, NACKED), (MANUAL, None)],
)
def test_a_handler_that_raises(policy: AckPolicy, expected: Any):
    assert verdict(ValueError("no"), policy) == expected


@pytest.mark.parametrize("policy", list(AckPolicy))
@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (Ack(), ACKED),
        (Nack(), Verdict(VerdictKind.NACK)),
        (Nack("busy", delay="2s"), Verdict(VerdictKind.NACK, 2_000, "busy")),
        (Nack(delay=0), Verdict(VerdictKind.NACK, 0)),
        (NotTried(), RETURNED),
        (Reject("unknown address"), Verdict(VerdictKind.REJECT, None, "unknown address")),
        (Reject(), Verdict(VerdictKind.REJECT, None, "rejected by its handler")),
    ],
)
def test_a_handler_that_raises_its_verdict_has_it_in_every_policy_but_ack_first(
    policy: AckPolicy, raised: Exception, expected: Verdict
):
    assert verdict(raised, policy, failures=99) == (None if policy is ACK_FIRST else expected)


@pytest.mark.parametrize(("failures", "expected"), [(1, NACKED), (2, NACKED), (3, REJECTED), (4, REJECTED)])
def test_the_failure_after_the_last_retry_rejects(failures: int, expected: Verdict):
    assert verdict(ValueError("no"), NACK_ON_ERROR, failures) == expected


def test_what_is_raised_as_a_verdict_is_no_failure():
    assert [is_failure(e) for e in (None, Ack(), Nack(), Reject(), ValueError())] == [False] * 4 + [True]


def test_a_nack_that_would_wait_longer_than_a_broker_lets_it_is_refused_where_it_is_raised():
    with pytest.raises(Invalid, match="delay"):
        Nack(delay="2d")
