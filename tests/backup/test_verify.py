"""Verifying a backup: every flipped bit and every missing object is found and named."""

from __future__ import annotations

import msgspec
import pytest

from tenure.backup.files import read_manifest
from tenure.backup.manifest import MANIFEST, Manifest, decode_manifest, digest, encode_manifest
from tenure.backup.verify import verify_backup
from tenure.errors import Corrupt, NotFound
from tenure.log import checkpoint
from tenure.testing.simstore import SimStore
from tests.backup.places import opened, place_on, taken
from tests.broker.damaged import rich_log


@pytest.fixture
def store() -> SimStore:
    """A backup of a log in which everything happens, with a checkpoint."""
    disk, clock = rich_log()
    engine = opened(disk, clock)
    checkpoint.save(disk, engine.log.position(), engine.checkpoint())
    engine.log.close()
    made = SimStore()
    with place_on(made) as place:
        taken(disk, place)
    return made


def test_a_sound_backup_has_no_problems(store: SimStore):
    with place_on(store) as place:
        found = verify_backup(place)
    assert found.problems == []
    assert found.batches > 20


def test_a_flipped_bit_in_any_object_is_found_and_named(store: SimStore):
    for key, (data, _) in [*store.objects.items()]:
        store.objects[key] = (data[:-1] + bytes([data[-1] ^ 1]), 0)
        if key != MANIFEST:
            with place_on(store) as place:
                [problem] = verify_backup(place).problems
            assert key in problem
        store.objects[key] = (data, 0)


def test_every_missing_object_is_listed(store: SimStore):
    gone = [key for key in store.objects if key != MANIFEST][::7]
    for key in gone:
        del store.objects[key]
    with place_on(store) as place:
        problems = verify_backup(place).problems
    assert len(problems) == len(gone)
    assert all("it is missing" in problem for problem in problems)


def test_an_object_that_was_cut_short_is_found(store: SimStore):
    key = next(key for key in store.objects if "/segments/" in key)
    store.objects[key] = (store.objects[key][0][:-1], 0)
    with place_on(store) as place:
        [problem] = verify_backup(place).problems
    assert key in problem


def test_every_flipped_bit_of_the_manifest_is_refused(store: SimStore):
    data = store.objects[MANIFEST][0]
    whole = decode_manifest(data)
    for at in range(0, len(data) - 1, 13):
        flipped = data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]
        try:
            assert decode_manifest(flipped) == whole, "only what has no meaning may differ"
        except Corrupt as error:
            assert error.code in ("backup_damaged", "format_too_new", "unknown_feature")  # noqa: PT017 - either is fine


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b"\xff", b'{"sha256":"","backup":{}}'])
def test_what_is_no_manifest_is_refused(store: SimStore, data: bytes):
    store.objects[MANIFEST] = (data, 0)
    with place_on(store) as place, pytest.raises(Corrupt, match="Use another backup"):
        read_manifest(place)


def test_a_place_without_a_manifest_holds_no_backup():
    with place_on(SimStore()) as place, pytest.raises(NotFound, match="no finished backup"):
        verify_backup(place)


@pytest.mark.parametrize(
    ("newer", "code"),
    [({"format": 2, "tenure": "9.9"}, "format_too_new"), ({"features": [("zstd", "9.9")]}, "unknown_feature")],
)
def test_a_backup_of_a_newer_version_is_refused_and_names_it(store: SimStore, newer: dict[str, object], code: str):
    manifest = decode_manifest(store.objects[MANIFEST][0])
    store.objects[MANIFEST] = (encode_manifest(msgspec.structs.replace(manifest, **newer)), 0)
    with place_on(store) as place, pytest.raises(Corrupt, match=r"Tenure 9\.9 or later") as caught:
        read_manifest(place)
    assert caught.value.code == code


def test_a_manifest_that_cannot_be_true_is_refused(store: SimStore):
    manifest = decode_manifest(store.objects[MANIFEST][0])
    replace = msgspec.structs.replace
    wrong: list[Manifest] = [
        replace(manifest, segments=[]),
        replace(manifest, segments=manifest.segments[:-1]),
        replace(manifest, segments=[manifest.segments[0], *manifest.segments[2:]]),
        replace(manifest, piece_bytes=0),
        replace(manifest, piece_bytes=10_000),
        replace(manifest, log_id="short"),
        *(
            replace(manifest, segments=[replace(manifest.segments[0], key=key), *manifest.segments[1:]])
            for key in ("../victim", "/etc/victim", "a/../../victim", "")
        ),
    ]
    for each in wrong:
        with pytest.raises(Corrupt, match="is damaged"):
            decode_manifest(encode_manifest(each))


def test_segments_of_another_log_are_found_although_their_digests_fit(store: SimStore):
    manifest = decode_manifest(store.objects[MANIFEST][0])
    other = msgspec.structs.replace(manifest, log_id=digest(b"")[:32])
    store.objects[MANIFEST] = (encode_manifest(other), 0)
    with place_on(store) as place:
        assert verify_backup(place).problems == ["a segment belongs to another log. Use another backup."]
