"""Bad input to the commands: every argument, every kind of nonsense.

Each attempt must be refused as Invalid and leave the state byte for byte as it was. A value of the wrong type that
slipped through would be logged, and a log that holds it could not be read back.
"""

from __future__ import annotations

import pytest

from tenure import Invalid, Record
from tenure.contract.commands import Claim
from tenure.core.decide.claim import check_claim
from tests.kit.nonsense import BAD, GOOD, HELD_ALONE, arguments_for
from tests.kit.rules import Rules, make_queue, snapshot

METHODS = [method for method in BAD if hasattr(Rules, method) and method != "run"]
CASES = [(method, argument) for method in METHODS for argument in BAD[method] if argument != "wait_ms"]


@pytest.fixture
def rules() -> Rules:
    """A state with something of everything in it."""
    rules = Rules()
    make_queue(rules, "i", jobs=1)
    assert rules.claim("i", node="w", isolate=True).lease_id == HELD_ALONE
    make_queue(rules, jobs=9, dlq_strategy="block", dead_letter="dead", retry_backoff={"min_ms": 100})
    rules.produce("q", [Record(data=b"t", tag="x", meta=b"{}", unique_key="u")], idempotency_key="k")
    rules.produce("q", [b"c"], client_id="c", client_seq=1)
    rules.claim("q", node="w", max_count=4, claim_id="c")
    rules.nack("q", node="w", seqs=[2], dead=True)
    rules.nack("q", node="w", seqs=[3])
    rules.put_topic("dead")
    rules.put_router("r", source="q", dest="u")
    return rules


@pytest.mark.parametrize(("method", "argument"), CASES, ids=[f"{method}-{argument}" for method, argument in CASES])
def test_nonsense_is_refused_and_changes_nothing(rules: Rules, method: str, argument: str) -> None:
    good, before = arguments_for(method, argument), snapshot(rules)
    for bad in BAD[method][argument]:
        with pytest.raises(Invalid) as error:
            getattr(rules, method)(**{**good, argument: bad})
        assert error.value.message, "it says what to fix"
        assert len(error.value.message) < 1000, "however much was sent"
        error.value.message.encode()
        assert snapshot(rules) == before


@pytest.mark.parametrize("method", METHODS)
def test_what_the_table_calls_good_is_taken(rules: Rules, method: str) -> None:
    """Without this, a mistake in the table would make every attempt fail for a reason that nobody meant."""
    getattr(rules, method)(**GOOD[method])


@pytest.mark.parametrize(
    "argument", ["node", "max_count", "lease_ms", "claim_id", "auto_ack", "isolate", "group", "suspects"]
)
def test_a_claim_that_would_wait_is_refused_before_it_does(rules: Rules, argument: str) -> None:
    for bad in BAD["claim"][argument]:
        with pytest.raises(Invalid):
            check_claim(Claim(**{"topic": "q", "node": "w", argument: bad}), rules.state.settings)
