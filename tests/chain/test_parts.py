"""A large link: its bytes lie in parts beside the chain, which are stored before it, and go with its epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from unittest import mock

import pytest

from tenure.chain import link as link_format
from tenure.chain.inspect import home_status, verify_home
from tenure.chain.keys import CHAIN, PARTS, mark_key, part_key, parts_prefix
from tenure.chain.link import FORMAT, NO_DIGEST, Kind, Link, Run, Span
from tenure.chain.open import retrying_store
from tenure.chain.parts import read_parts, store_parts
from tenure.chain.settings import ChainSettings
from tenure.chain.shipped import ShippedLog
from tenure.chain.uplink import Uplink
from tenure.errors import Corrupt, Indeterminate
from tenure.limits import KIB, MIB
from tenure.log.features import NO_FEATURES
from tenure.objects.background import background
from tenure.objects.retrying import RetryingStore
from tenure.testing.simdisk import SimDisk
from tenure.testing.simstore import Call, Fault, SimStore
from tests.chain.kit import FAST, open_log
from tests.chain.test_space import Story, keys

LARGE = [b"%02d" % number + bytes(150 * KIB) for number in range(16)]
"""More than two parts of the least size, and as one batch."""


def opened(store: SimStore, disk: SimDisk, *, settings: ChainSettings = FAST) -> tuple[ShippedLog, list[bytes]]:
    log = open_log(store, disk, settings=settings)
    return log, [bytes(body) for *_, body in log.replay()]


def put_large(log: ShippedLog) -> None:
    log.append([(20, 1, body) for body in LARGE])
    log.sync()


def last_link(store: SimStore) -> tuple[Link, int]:
    """Return the newest link as it is stored, and the size of its object."""
    key = max(keys(store, CHAIN))
    data = store.objects[key][0]
    return Link.unpack(data, key), len(data)


@pytest.fixture
def home() -> SimStore:
    """A home whose newest link is large."""
    store = SimStore()
    put_large(opened(store, SimDisk())[0])
    return store


def test_a_large_link_is_small_and_its_parts_hold_its_bytes(home: SimStore):
    link, size = last_link(home)
    assert len(link.parts) == 3
    assert size < 1_000
    assert sum(part.length for part in link.parts) == sum(span.length for span in link.spans) > 16 * 150 * KIB
    assert keys(home, PARTS) == sorted(f"{parts_prefix(link.epoch)}{part.sha256.hex()}" for part in link.parts)
    assert opened(home, SimDisk(1))[1] == LARGE


def test_a_link_that_has_no_parts_is_what_every_version_reads():
    store = SimStore()
    log, _ = opened(store, SimDisk())
    log.append([(20, 1, b"small")])
    log.sync()
    with mock.patch.object(link_format, "FORMAT", 1):
        assert last_link(store)[0].runs


def test_a_version_that_knows_no_parts_says_that_it_is_too_old(home: SimStore):
    with mock.patch.object(link_format, "FORMAT", 1), pytest.raises(Corrupt) as caught:
        last_link(home)
    assert caught.value.code == "format_too_new"
    assert FORMAT == 2


def test_while_the_feature_is_off_a_large_link_goes_whole():
    store = SimStore()
    log, _ = opened(store, SimDisk())
    log.features = NO_FEATURES
    put_large(log)
    assert keys(store, PARTS) == []
    assert opened(store, SimDisk(1))[1] == LARGE


def test_the_parts_are_stored_before_the_link_that_names_them(home: SimStore):
    made = [call.key for call in home.calls if call.kind == "put_new" and call.bytes > 0]
    at = made.index(max(keys(home, CHAIN)))
    assert sorted(made[at - 3 : at]) == keys(home, PARTS)


def test_of_a_link_whose_part_is_lost_on_the_way_only_that_part_is_sent_again():
    store = SimStore()
    log, _ = opened(store, SimDisk())
    lost = iter([False, True, False, False])

    def lose(call: Call) -> Fault | None:
        return "lost_request" if call.kind == "put_new" and call.key.startswith(PARTS) and next(lost) else None

    store.hook = lose
    before = len(store.calls)
    put_large(log)
    sent = [call.bytes for call in store.calls[before:] if call.kind == "put_new" and call.key.startswith(PARTS)]
    assert sorted(sent) == [sum(sent) - 3 * MIB, MIB, MIB, MIB]
    assert opened(store, SimDisk(1))[1] == LARGE


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_leader_that_dies_while_it_stores_parts_goes_on_with_them(after: int):
    store, disk = SimStore(), SimDisk()
    log, _ = opened(store, disk)
    stored = iter(range(100))

    def fail(call: Call) -> Fault | None:
        is_late = call.kind == "put_new" and call.key.startswith(PARTS) and next(stored) >= after
        return "lost_request" if is_late else None

    store.hook = fail
    log.leadership.is_over = lambda: len(keys(store, PARTS)) == after
    with pytest.raises(Indeterminate):
        put_large(log)
    store.hook = lambda call: None
    again, bodies = opened(store, disk.kill())
    assert bodies == LARGE
    assert again.synced_batch == again.written_batch
    assert opened(store, SimDisk(1))[1] == LARGE


def _lose(store: SimStore, key: str) -> None:
    store.lose([key])


def _flip(store: SimStore, key: str) -> None:
    data, at_ms = store.objects[key]
    store.objects[key] = (bytes([data[0] ^ 1]) + data[1:], at_ms)


def _cut(store: SimStore, key: str) -> None:
    data, at_ms = store.objects[key]
    store.objects[key] = (data[:-1], at_ms)


@pytest.mark.parametrize("damage", [_lose, _flip, _cut])
def test_a_part_that_is_gone_or_damaged_is_named(home: SimStore, damage: Callable[[SimStore, str], None]):
    key = keys(home, PARTS)[1]
    damage(home, key)
    with pytest.raises(Corrupt, match=key):
        opened(home, SimDisk(1))
    with pytest.raises(Corrupt, match=key):
        background().run(verify_home(retrying_store(home, FAST), FAST))


def test_a_reader_whose_parts_were_freed_meanwhile_begins_at_a_checkpoint(home: SimStore):
    """Naive: a part that is missing is damage, and a standby that was slow ends for it."""
    link, _ = last_link(home)
    home.lose(keys(home, PARTS))
    home.objects[mark_key(link.epoch)] = (b"freed", 0)
    with pytest.raises(Exception) as caught:
        opened(home, SimDisk(1))
    assert caught.value.code == "chain_freed"  # type: ignore[attr-defined]


def test_parts_go_with_the_links_of_their_epoch_also_those_that_none_names():
    story = Story()
    orphan = f"{parts_prefix(story.log.leadership.epoch)}{'0' * 64}"
    story.store.objects[orphan] = (b"of a leader that died", 0)
    put_large(story.log)
    for _ in range(6):
        story.write()
        story.save()
    assert len(keys(story.store, "freed/")) > 5
    assert keys(story.store, PARTS) == []


def test_the_status_of_a_home_counts_what_lies_in_parts(home: SimStore):
    status = background().run(home_status(retrying_store(home, FAST), FAST))
    assert status.link_bytes > sum(map(len, LARGE))
    verified = background().run(verify_home(retrying_store(home, FAST), FAST))
    assert verified.link_bytes > sum(map(len, LARGE))


# What goes whole


def rates(uplink: Uplink, *samples: tuple[int, float]) -> Iterator[int]:
    for size, took_s in samples:
        uplink.measured(size, took_s)
        yield uplink.whole_bytes_max


def test_what_goes_whole_takes_half_a_beat_at_the_rate_of_the_slowest_upload_of_late():
    uplink = Uplink(500)
    assert uplink.whole_bytes_max == 128 * KIB, "before anything was measured"
    assert list(rates(uplink, (MIB, 2.0))) == [128 * KIB]
    assert list(rates(uplink, (MIB, 16.0))) == [16 * KIB], "slower: at once, down to what any link has"
    assert uplink.part_bytes == MIB
    *_, last = rates(uplink, *[(MIB, 0.01)] * 20)
    assert last == 2 * MIB, "faster: by halves"
    assert uplink.part_bytes == 8 * MIB


def test_a_small_link_says_nothing_of_the_rate():
    uplink = Uplink(500)
    assert list(rates(uplink, (300, 0.2), (300, 0.0001))) == [128 * KIB, 128 * KIB]


def test_more_parts_are_under_way_while_each_is_quick_and_one_when_one_is_slow():
    uplink = Uplink(500)
    widths = []
    for took_s in (0.1, 0.1, 0.1, 0.6, 0.1):
        uplink.measured(MIB, took_s)
        widths.append(uplink.parts_at_once)
    assert widths == [2, 4, 4, 1, 2]


# Pieces and runs


class SmallParts(Uplink):
    """An uplink that takes ten bytes at a time, three at once."""

    part_bytes = 10

    def __init__(self) -> None:
        super().__init__(500)
        self.parts_at_once = 3


async def stored(store: RetryingStore, runs: list[Run]) -> Link:
    """Store runs in parts, and return the link that names them, as it is read."""
    parts = await store_parts(store, runs, epoch=1, uplink=SmallParts(), is_over=lambda: False)
    spans = tuple(Span(run.segment, run.offset, len(run.data)) for run in runs)
    return Link(Kind.DATA, bytes(16), 1, 1, NO_DIGEST, parts=tuple(parts), spans=spans)


@pytest.mark.parametrize("sizes", [[25], [3, 4, 5], [10, 10], [7, 31, 1, 20, 12], [1] * 21, [0, 11, 0]])
async def test_runs_come_back_from_parts_whose_bounds_are_not_theirs(sizes: list[int]):
    store, bodies = retrying_store(SimStore(), FAST), iter(range(256))
    runs = [Run(1, at, bytes(next(bodies) for _ in range(size))) for at, size in enumerate(sizes)]
    assert (await read_parts(store, await stored(store, runs), "link")).runs == runs


async def test_a_link_whose_runs_take_more_than_its_parts_hold_is_refused():
    store = retrying_store(SimStore(), FAST)
    link = await stored(store, [Run(1, 0, bytes(25))])
    with pytest.raises(Corrupt, match="take 26 bytes, its parts hold 25"):
        await read_parts(store, link._replace(spans=(Span(1, 0, 26),)), "link")


async def test_what_somebody_else_wrote_at_the_key_of_a_part_is_named():
    sim, runs = SimStore(), [Run(1, 0, b"0123456789")]
    link = await stored(retrying_store(sim, FAST), runs)
    [key] = [part_key(1, part.sha256) for part in link.parts]
    _flip(sim, key)
    with pytest.raises(Corrupt, match="something else wrote there"):
        await stored(retrying_store(sim, FAST), runs)
