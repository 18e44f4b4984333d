"""Events as they are logged: each reads back as itself, and the numbers and fields of a kind never move."""

from __future__ import annotations

import msgspec
import pytest

from tenure.contract.config import DEFAULTS
from tenure.core.events import (
    KINDS,
    Acked,
    Appended,
    AppendExtra,
    BaseBegun,
    BasePart,
    Begun,
    Carried,
    Claimed,
    ClaimedIsolated,
    ClockSet,
    DeadLettered,
    Deleted,
    Event,
    Evicted,
    Extended,
    Lost,
    Opened,
    Redriven,
    Released,
    Returned,
    RouterDeleted,
    RouterMoved,
    RouterPut,
    StateCarried,
    TopicCarried,
    TopicDeleted,
    TopicPut,
    decode,
    encode,
    kind_of,
)
from tenure.errors import Corrupt

EXTRA = AppendExtra(
    True, [1, 2], [3, 4], [(5, "u")], (b"k" * 16, 2**64 - 1, 7), ("c", 2**63 - 1), [1, 2], "d", 3, [1, 19]
)
EVENTS: list[Event] = [
    Opened(1, 2, "boot", 3, -4),
    ClockSet(1, -(2**40)),
    TopicPut(1, 2, "t", DEFAULTS),
    TopicDeleted(1, 2),
    Appended(1, 2, 3, 4, 2, b"\1\0\0\0\2\0\0\0", b"ab", True, None),
    Appended(1, 2, 3, 4, 1, b"", b"ab", False, EXTRA),
    Deleted(1, 2, [1, 2, 5, 1], 3, 4),
    Evicted(1, 2, [1, 2], 2, 4, "cap"),
    Claimed(1, 2, 2**63, "é", 5, [1, 1000], None),
    Claimed(1, 2, 3, "w", 5, [1, 1], "claim"),
    Acked(1, 2, [1, 2], 3, "w"),
    Released(1, 2, [1, 2], "w", 9, [8, 9], "reason", "disconnect"),
    Extended(1, 2, [1, 2], 9, "w", "sync"),
    DeadLettered(1, 2, [1, 2], "move", "reason", 7, 8, 9),
    Redriven(1, 2, [1, 2], 3, False, 4, 5),
    RouterPut(1, "r", "a", "b", True, False, True, ["tag", "Eq", "x"], False, 7),
    RouterDeleted(1, "r"),
    RouterMoved(1, "r", 2, 3, 4, 5),
    Carried(1, 2, 3, 9, [3, 5], [1, 1], [2, 2], b"\1\0\0\0\2\0\0\0", b"ab", True),
    Carried(1, 2, 3, 9, [3, 5], [1, 1], [0, 0], b"\1\0\0\0\2\0\0\0", b"", True, "its frame fails its checksum"),
    TopicCarried(1, 2, msgspec.Raw(b"\x93\x01\x02\x03")),
    StateCarried(1, msgspec.Raw(b"\x90")),
    BaseBegun(1, 2, "q"),
    BasePart(1, 2, 3, 4, b"data", True),
    ClaimedIsolated(1, 2, 2**63, "w", 5, [1, 1000], None, "é", True),
    ClaimedIsolated(1, 2, 3, "w", 5, [1, 1], "claim", "group"),
    Begun(1, 2, [7, 1], "w", 30_000),
    Returned(1, 2, [1, 2], "w", 9, "drained"),
    Lost(1, 2, [1, 2], "w", -9),
    Lost(1, 2, [1, 2], "w"),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_reads_back_as_itself(event: Event) -> None:
    back = decode(kind_of(event), encode(event))
    assert type(back) is type(event)
    assert encode(back) == encode(event)
    if not isinstance(event, TopicCarried | StateCarried):
        assert back == event


def test_a_rewrite_from_before_records_could_be_lost_reads_as_whole() -> None:
    fields = msgspec.msgpack.decode(encode(Carried(1, 2, 3, 9, [3], [1], [2], b"\1\0\0\0", b"a", True)))
    old = decode(32, msgspec.msgpack.encode(fields[:10]))
    assert isinstance(old, Carried)
    assert (old.lost, old.size_bytes) == (None, 1)


def test_every_kind_is_tried_here() -> None:
    assert {type(event) for event in EVENTS} == set(KINDS.values())


def test_the_number_of_a_kind_never_changes() -> None:
    """A log written by an older version is read by these numbers; new kinds go after the last."""
    assert [(kind, event.__name__) for kind, event in sorted(KINDS.items())] == [
        (16, "Opened"),
        (17, "ClockSet"),
        (18, "TopicPut"),
        (19, "TopicDeleted"),
        (20, "Appended"),
        (21, "Deleted"),
        (22, "Evicted"),
        (23, "Claimed"),
        (24, "Acked"),
        (25, "Released"),
        (26, "Extended"),
        (27, "DeadLettered"),
        (28, "Redriven"),
        (29, "RouterPut"),
        (30, "RouterDeleted"),
        (31, "RouterMoved"),
        (32, "Carried"),
        (33, "TopicCarried"),
        (34, "StateCarried"),
        (35, "BaseBegun"),
        (36, "BasePart"),
        (37, "ClaimedIsolated"),
        (38, "Begun"),
        (39, "Returned"),
        (40, "Lost"),
    ]


def test_the_time_comes_first_in_every_event() -> None:
    for event in KINDS.values():
        assert event.__struct_fields__[0] == "at_ms"


def test_an_event_written_before_a_field_was_added_takes_its_default() -> None:
    old = msgspec.msgpack.encode([1, 2, [1, 1], "w", 9])
    assert decode(25, old) == Released(1, 2, [1, 1], "w", 9, None, None, "nack")


def test_a_thousand_contiguous_jobs_are_two_numbers() -> None:
    assert len(encode(Claimed(1, 2, 3, "w", 5, [1, 1000]))) < 20


@pytest.mark.parametrize(("kind", "body"), [(15, b"\x90"), (99, b"\x90"), (24, b""), (24, b"\x91\x01"), (24, b"\xc1")])
def test_a_frame_that_holds_no_event_is_corrupt(kind: int, body: bytes) -> None:
    with pytest.raises(Corrupt):
        decode(kind, body)
