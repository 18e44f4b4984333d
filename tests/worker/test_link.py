"""Whether the broker answers, said once; and how old is what it sends."""

from __future__ import annotations

import logging

import pytest

from tenure import Denied, Overloaded
from tenure.worker.runtime.link import Ages, Link


def test_an_outage_is_said_once_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tenure.worker")
    link = Link("http://there")
    for queue in ("a", "b"):
        link.up(queue)
    assert caplog.messages == ["working at a", "working at b"]
    caplog.clear()
    for code in ("disconnected", "unreachable", "unreachable"):
        for queue in ("a", "b"):
            link.down(queue, Overloaded("nobody is there", code=code))
    assert caplog.messages == ["waiting for the broker at http://there, for a and others: nobody is there"]
    caplog.clear()
    link.up("a")
    assert caplog.messages == []
    link.up("b")
    assert caplog.messages == ["the broker at http://there is back"]


def test_another_reason_is_said_too(caplog: pytest.LogCaptureFixture) -> None:
    link = Link("http://there")
    link.down("a", Overloaded("nobody is there"))
    link.down("a", Denied("the key is not known"))
    link.down("a", Denied("the key is not known"))
    assert [message.rpartition(": ")[2] for message in caplog.messages] == ["nobody is there", "the key is not known"]


def test_an_age_needs_no_agreement_between_clocks() -> None:
    ages = Ages()
    assert ages.age_ms(1_700_000_000_000, 5_000) == 0
    assert ages.age_ms(1_700_000_001_000, 6_020) == 20
    assert ages.age_ms(1_700_000_002_000, 26_000) == 19_000
    assert ages.age_ms(1_700_000_030_000, 34_990) == 0, "it was the first that took 10 ms longer"
    assert ages.age_ms(1_700_000_031_000, 36_000) == 10
    ages.reset()
    assert ages.age_ms(1_600_000_000_000, 40_000) == 0
