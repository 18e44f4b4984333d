"""A topic's config from Python: nothing misspelt is believed, and what is made on the way is made carefully."""

from __future__ import annotations

import pytest

from tenure.client.client import AsyncClient
from tenure.client.config import BackoffFields, BackoffPatch, ConfigFields, PatchFields, careful_queue
from tenure.contract.config import DEFAULTS, as_dict
from tenure.errors import Invalid
from tenure.testing import memory_broker
from tenure.testing.wire import AppWire


def test_the_keyword_arguments_are_the_fields_of_a_config():
    assert ConfigFields.__optional_keys__ == set(as_dict(DEFAULTS)) | {"durable"}


def test_the_keyword_arguments_of_a_patch_are_those_of_a_put_but_for_the_type():
    assert PatchFields.__optional_keys__ == ConfigFields.__optional_keys__ - {"type"}
    assert BackoffPatch.__optional_keys__ == BackoffFields.__optional_keys__


async def test_a_misspelt_setting_is_refused_before_anything_is_sent():
    async with memory_broker() as broker, AsyncClient(wire=AppWire(broker)) as client:
        with pytest.raises(Invalid, match="no setting 'leas_ms': did you mean lease_ms"):
            await client.put_topic("emails", leas_ms=5)  # type: ignore[call-arg]
        with pytest.raises(Invalid, match="no setting 'leas_ms': did you mean lease_ms"):
            await client.patch_topic("emails", leas_ms=5)  # type: ignore[call-arg]
        with pytest.raises(Invalid, match="does not change"):
            await client.patch_topic("emails", type="queue")  # type: ignore[call-arg]
        with pytest.raises(Invalid, match="no setting 'max_delivery'"):
            await client.produce("emails", [1], config={"max_delivery": 5})
        assert (await client.topics()).topics == []


async def test_a_queue_that_is_put_into_before_it_was_declared_is_a_careful_one():
    async with memory_broker() as broker, AsyncClient(wire=AppWire(broker)) as client:
        await client.queue("emails").put({"to": "ada"})
        config = (await client.topic("emails")).config
        assert {field: getattr(config, field) for field in careful_queue("emails")} == careful_queue("emails")
        assert config.durability == "fsync"


def test_a_name_without_room_for_a_dead_letter_topic_is_still_a_queue() -> None:
    assert careful_queue("q" * 250)["dead_letter"] == "q" * 250 + ".dead"
    assert "dead_letter" not in careful_queue("q" * 251)
