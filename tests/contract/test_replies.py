"""Replies: the broker returns what the client decodes, and the wire has no field that is absent."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenure import Record
from tenure.contract.config import Backoff, TopicConfig
from tenure.contract.replies import ConfigInfo, JobInfo, JobPage, JobRow, LeasePage, QueueStrip, TopicInfo
from tenure.contract.replies.topics import config_info
from tenure.testing.clock import ManualClock
from tests.kit.rules import Rules, make_queue


@pytest.fixture
def rules() -> Rules:
    rules = Rules(ManualClock())
    make_queue(rules, jobs=3, dlq_strategy="block")
    rules.produce("q", [Record(data=b'{"a": 1.50}', tag="t", node="p", meta=b'{"m": [ ]}')])
    rules.claim("q", node="w", max_count=2)
    rules.nack("q", node="w", seqs=[2], dead=True, reason="poison")
    return rules


def replies_of(rules: Rules) -> list[Any]:
    jobs, leases = rules.jobs("q", state="in_flight"), rules.leases("q")
    return [
        *(rules.job("q", seq) for seq in (1, 2, 3, 4)),
        JobPage("q", "in_flight", jobs.items, jobs.next_cursor),
        LeasePage("q", leases.items, leases.next_cursor),
        rules.strip("q"),
        rules.topic("q"),
        rules.put_topic("log")[0],
    ]


def test_a_reply_of_the_broker_comes_back_from_the_wire_as_it_was(rules: Rules) -> None:
    for reply in replies_of(rules):
        assert isinstance(reply, JobInfo | JobPage | LeasePage | QueueStrip | TopicInfo)
        text = msgspec.json.encode(reply)
        assert msgspec.json.decode(text, type=type(reply)) == reply


def test_a_job_is_written_without_what_is_not_known_of_it(rules: Rules) -> None:
    assert msgspec.json.decode(msgspec.json.encode(rules.job("q", 3))) == {
        "topic": "q",
        "$seq": 3,
        "$ts": rules.job("q", 3).ts,
        "data": 3,
        "state": "ready",
        "deliveries": 0,
        "history": [],
    }
    assert msgspec.json.encode(JobRow(3, "ready", 0)) == b'{"$seq":3,"state":"ready","deliveries":0}'


def test_data_and_meta_of_a_job_are_written_byte_for_byte(rules: Rules) -> None:
    text = msgspec.json.encode(rules.job("q", 4))
    assert b'"data":{"a": 1.50},"meta":{"m": [ ]}' in text


def test_a_config_is_an_array_in_the_log_and_an_object_in_a_reply() -> None:
    config = TopicConfig(type="queue", durability="fsync", retry_backoff=Backoff(min_ms=5))
    assert msgspec.json.encode(config).startswith(b'["queue",0,')
    shown = msgspec.json.decode(msgspec.json.encode(config_info(config)))
    assert list(shown) == [*TopicConfig.__struct_fields__, "durable"]
    assert (shown["durable"], shown["retry_backoff"]["min_ms"]) == (True, 5)
    assert msgspec.json.decode(msgspec.json.encode(shown), type=ConfigInfo) == config_info(config)
