"""Where a dead letter says it came from."""

from __future__ import annotations

import msgspec
import pytest

from tenure.contract import provenance
from tenure.contract.provenance import Provenance


def test_a_stamp_is_read_back_and_leaves_the_rest_of_the_meta_as_it_was():
    meta = provenance.stamp(b'{"a": 1.50, "b":[ ]}', Provenance("q", 7, 3, "451 busy"))
    assert provenance.read(meta) == Provenance("q", 7, 3, "451 busy")
    assert b'"a":1.50' in meta, "byte for byte"


def test_a_later_stamp_replaces_an_earlier_one():
    once = provenance.stamp(None, Provenance("q", 7, 3, "first"))
    assert provenance.read(provenance.stamp(once, Provenance("p", 1, 2, "second"))) == Provenance("p", 1, 2, "second")


@pytest.mark.parametrize("meta", [None, b"{}", b'{"$dead_letter_from":5}', b'{"$dead_letter_src_seq":1}'])
def test_what_names_no_queue_is_not_a_dead_letter(meta: bytes | None):
    assert provenance.read(meta) is None


@pytest.mark.parametrize("deliveries", [b"-1", b"0", b"4294967296", b'"3"'])
def test_an_impossible_count_is_not_known(deliveries: bytes):
    meta = b'{"$dead_letter_from":"q","$dead_letter_deliveries":%b,"$dead_letter_src_seq":"x"}' % deliveries
    assert provenance.read(msgspec.Raw(meta)) == Provenance("q", 0, 0, "")


@pytest.mark.parametrize("count", [b"-1", b"0", b"4294967296", b'"3"', b"true"])
def test_an_impossible_count_of_losses_or_tries_is_not_known(count: bytes):
    meta = b'{"$dead_letter_from":"q","$dead_letter_lost":%b,"$dead_letter_tries":%b}' % (count, count)
    assert provenance.read(msgspec.Raw(meta)) == Provenance("q", 0, 0, "")


def test_a_stamp_without_losses_takes_those_of_an_earlier_one_away():
    once = provenance.stamp(None, Provenance("q", 7, 9, "first", lost=3, tries=2))
    assert provenance.read(once) == Provenance("q", 7, 9, "first", lost=3, tries=2)
    assert provenance.read(provenance.stamp(once, Provenance("p", 1, 2, "second"))) == Provenance("p", 1, 2, "second")
